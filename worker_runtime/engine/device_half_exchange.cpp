#include "worker_runtime/engine/device_half_exchange.h"

#include "worker_runtime/engine/staging.h"
#include "worker_runtime/kernels/launch.h"

namespace muster::runtime {

namespace {

std::uint16_t* in_halves(const Buffer& buffer) {
    return static_cast<std::uint16_t*>(buffer.data);
}

}  // namespace

Result<void> DeviceHalfExchange::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    queue_ = terms.device;
    rank_ = static_cast<std::size_t>(terms.rank);
    world_ = static_cast<std::size_t>(terms.world);
    samples_ = terms.weights;
    staging_.clear();
    StagingPlan plan(memory_);
    plan.add(weights_, {.data = nullptr, .count = world_, .type = DataType::f32});
    for (const auto& bucket : buckets) {
        auto& mine = staging_.emplace_back();
        mine.exchange = this;
        mine.gradients = bucket.gradients;
        if (bucket.gradients.type != DataType::f32) continue;
        // Pieces begin at cache lines.
        const std::size_t line = gradient_alignment_bytes / size_of(wire_);
        const std::size_t piece = ((bucket.gradients.count + world_ - 1) / world_ + line - 1) / line * line;
        const Buffer all{.data = nullptr, .count = world_ * piece, .type = wire_};
        plan.add(mine.outgoing, all);
        plan.add(mine.incoming, all);
    }
    return plan.take(terms);
}

Result<std::optional<Operation>> DeviceHalfExchange::advance(const GradientBucket& bucket, int stage) {
    auto& mine = staging_[bucket.index];
    if (stage == collective_count(bucket)) return std::optional<Operation>();
    if (bucket.gradients.type != DataType::f32)
        return std::optional(all_reduce_weighted(mine.gradients, bucket.samples));
    if (stage == 1) {
        Operation gather = all_gather(mine.own_piece(), mine.outgoing);
        gather.steps = &mine;
        return std::optional(gather);
    }
    const kernels::Narrow narrow{.from = static_cast<const float*>(mine.gradients.data),
                                 .to = in_halves(mine.outgoing),
                                 .given = mine.gradients.count,
                                 .count = mine.outgoing.count,
                                 .type = wire_};
    if (auto put = kernels::launch(*queue_, narrow); !put) return put.error();
    auto ready = queue_->mark(bucket.index);
    if (!ready) return ready.error();
    Operation exchange = all_to_all(mine.outgoing, mine.incoming, static_cast<int>(world_));
    exchange.after = *ready;
    return std::optional(exchange);
}

Buffer DeviceHalfExchange::Staging::own_piece() const {
    Buffer piece = outgoing;
    piece.count = piece_elements();
    piece.data = in_halves(piece) + exchange->rank_ * piece.count;
    return piece;
}

Result<void> DeviceHalfExchange::Staging::before(KernelQueue& stream) const {
    const std::size_t world = exchange->world_;
    auto* const weights = static_cast<float*>(exchange->weights_.data);
    for (std::size_t at = 0; at < world; at += kernels::PutNumbers::most) {
        kernels::PutNumbers put{
            .values = {}, .to = weights + at, .count = std::min<std::size_t>(kernels::PutNumbers::most, world - at)};
        std::copy_n(exchange->samples_ + at, put.count, put.values);
        if (auto done = kernels::launch(stream, put); !done) return done;
    }
    float sum = exchange->samples_[0];
    for (std::size_t rank = 1; rank < world; ++rank) sum += exchange->samples_[rank];
    return kernels::launch(stream, kernels::AverageHalves{.pieces = in_halves(incoming),
                                                          .weights = weights,
                                                          .to = in_halves(own_piece()),
                                                          .count = piece_elements(),
                                                          .world = static_cast<std::uint32_t>(world),
                                                          .reciprocal = 1 / sum,
                                                          .type = exchange->wire_});
}

Result<void> DeviceHalfExchange::Staging::behind(KernelQueue& stream) const {
    return kernels::launch(stream, kernels::Widen{.from = in_halves(outgoing),
                                                  .to = static_cast<float*>(gradients.data),
                                                  .count = gradients.count,
                                                  .type = exchange->wire_});
}

}  // namespace muster::runtime
