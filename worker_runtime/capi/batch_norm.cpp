#include "muster/batch_norm.h"

#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

extern "C" {

muster_status muster_batch_statistics(muster_communicator* communicator, float* mean, float* variance,
                                      size_t channel_count, uint64_t* count) {
    return with(__func__, communicators, communicator, [&](CommunicatorObject& found) -> Result<void> {
        if (count == nullptr) return invalid("`count` is NULL");
        if (channel_count > 0 && (mean == nullptr || variance == nullptr)) return invalid("no buffer was given");
        BatchStatistics statistics{
            .mean = {mean, channel_count}, .variance = {variance, channel_count}, .count = *count};
        auto done = synchronise_batch_statistics(found.get(), statistics);
        if (done) *count = statistics.count;
        return done;
    });
}

muster_status muster_batch_gradients(muster_communicator* communicator, float* sum_gradient, float* sum_product,
                                     size_t channel_count) {
    return with(__func__, communicators, communicator, [&](CommunicatorObject& found) -> Result<void> {
        if (channel_count > 0 && (sum_gradient == nullptr || sum_product == nullptr)) {
            return invalid("no buffer was given");
        }
        return synchronise_batch_gradients(found.get(), {sum_gradient, channel_count}, {sum_product, channel_count});
    });
}
}
