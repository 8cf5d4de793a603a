// The objects of the handles. Each keeps the objects that it depends on, so handles may be released in any order.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "muster/context.h"
#include "muster/gradient_reducer.h"
#include "muster/loss_scaler.h"
#include "muster/muster_loss_scaler.h"
#include "muster/sharded_optimizer.h"
#include "worker_runtime/capi/handles.h"

namespace muster::capi {

struct CommunicatorObject {
    std::shared_ptr<Context> context;
    std::unique_ptr<Communicator> own;  ///< a group; null for the world, which is the context's

    [[nodiscard]] Communicator& get() const { return own ? *own : context->world(); }
};

struct ReducerObject {
    std::shared_ptr<CommunicatorObject> communicator;
    GradientReducer reducer;
    ReducerState kept = {};  ///< The state that the caller received last.
};

struct OptimizerObject {
    std::shared_ptr<ReducerObject> reducer;
    ShardedOptimizer optimizer;
};

// Never destroyed: threads of the caller may still be in a call while the process ends.
inline Handles<muster_context, Context>& contexts() {
    static auto& all = *new Handles<muster_context, Context>("context");
    return all;
}
inline Handles<muster_communicator, CommunicatorObject>& communicators() {
    static auto& all = *new Handles<muster_communicator, CommunicatorObject>("communicator");
    return all;
}
inline Handles<muster_work, Work>& works() {
    static auto& all = *new Handles<muster_work, Work>("work");
    return all;
}
inline Handles<muster_memory, Memory>& memories() {
    static auto& all = *new Handles<muster_memory, Memory>("memory");
    return all;
}
inline Handles<muster_reducer, ReducerObject>& reducers() {
    static auto& all = *new Handles<muster_reducer, ReducerObject>("reducer");
    return all;
}
inline Handles<muster_optimizer, OptimizerObject>& optimizers() {
    static auto& all = *new Handles<muster_optimizer, OptimizerObject>("optimizer");
    return all;
}
inline Handles<muster_loss_scaler, LossScaler>& loss_scalers() {
    static auto& all = *new Handles<muster_loss_scaler, LossScaler>("loss scaler");
    return all;
}

}  // namespace muster::capi
