#include "worker_runtime/wires/device_half_exchange.h"

#include "worker_runtime/kernels/launch.h"
#include "worker_runtime/wires/staging.h"

namespace muster::runtime {

namespace {

std::uint16_t* in_halves(const Buffer& buffer) {
    return static_cast<std::uint16_t*>(buffer.data);
}

}  // namespace

Result<void> DeviceHalfExchange::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    queue_ = terms.device;
    staging_.clear();
    StagingPlan plan(memory_);
    average_.prepare(terms, plan);
    for (const auto& bucket : buckets) {
        auto& mine = staging_.emplace_back();
        mine.exchange = this;
        mine.gradients = bucket.gradients;
        if (bucket.gradients.type == DataType::f32) average_.add(mine.halves, bucket.gradients.count, plan);
    }
    return plan.take(terms);
}

Result<std::optional<Operation>> DeviceHalfExchange::advance(const GradientBucket& bucket, int stage) {
    auto& mine = staging_[bucket.index];
    if (stage == collective_count(bucket)) return std::optional<Operation>();
    if (bucket.gradients.type != DataType::f32)
        return std::optional(all_reduce_weighted(mine.gradients, bucket.samples));
    if (stage == 1) {
        Operation gather = average_.second(mine.halves);
        gather.steps = &mine;
        return std::optional(gather);
    }
    const kernels::Narrow narrow{.from = static_cast<const float*>(mine.gradients.data),
                                 .to = in_halves(mine.halves.numbers),
                                 .given = mine.gradients.count,
                                 .count = mine.halves.numbers.count,
                                 .type = wire_};
    MUSTER_TRY(kernels::launch(*queue_, narrow));
    Operation exchange = average_.first(mine.halves);
    exchange.after = MUSTER_TRY(queue_->mark(bucket.index));
    return std::optional(exchange);
}

Result<void> DeviceHalfExchange::Staging::behind(KernelQueue& stream) const {
    return kernels::launch(stream, kernels::Widen{.from = in_halves(halves.numbers),
                                                  .to = static_cast<float*>(gradients.data),
                                                  .count = gradients.count,
                                                  .type = exchange->wire_});
}

}  // namespace muster::runtime
