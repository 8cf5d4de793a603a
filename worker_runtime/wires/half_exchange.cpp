#include "worker_runtime/wires/half_exchange.h"

#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/wires/staging.h"

namespace muster::runtime {

Result<void> HalfExchange::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    staging_.assign(buckets.size(), Buffer{});
    StagingPlan plan(memory_);
    for (const auto& bucket : buckets) {
        if (bucket.gradients.type != DataType::f32) continue;
        plan.add(staging_[bucket.index], {.data = nullptr, .count = bucket.gradients.count, .type = wire_});
    }
    return plan.take(terms);
}

Result<std::optional<Operation>> HalfExchange::advance(const GradientBucket& bucket, int stage) {
    const Buffer& staging = staging_[bucket.index];
    const bool compressed = bucket.gradients.type == DataType::f32;
    if (stage == 0) {
        if (!compressed) return std::optional(all_reduce_weighted(bucket.gradients, bucket.samples));
        convert(bucket.gradients, staging);
        return std::optional(all_reduce_weighted(staging, bucket.samples));
    }
    if (compressed) convert(staging, bucket.gradients);
    return std::optional<Operation>();
}

}  // namespace muster::runtime
