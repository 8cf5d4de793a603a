// The objects of the handles. Each keeps the objects that it depends on, so handles may be released in any order.
#pragma once

#include <memory>

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

// Made when the library is loaded and never destroyed: threads of the caller may be in a call while the process ends.
inline auto& contexts = *new Handles<muster_context, Context>("context");
inline auto& communicators = *new Handles<muster_communicator, CommunicatorObject>("communicator");
inline auto& works = *new Handles<muster_work, Work>("work");
inline auto& memories = *new Handles<muster_memory, Memory>("memory");
inline auto& reducers = *new Handles<muster_reducer, ReducerObject>("reducer");
inline auto& optimizers = *new Handles<muster_optimizer, OptimizerObject>("optimizer");
inline auto& loss_scalers = *new Handles<muster_loss_scaler, LossScaler>("loss scaler");

}  // namespace muster::capi
