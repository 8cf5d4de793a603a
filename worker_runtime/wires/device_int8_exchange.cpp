#include "worker_runtime/wires/device_int8_exchange.h"

#include "worker_runtime/kernels/launch.h"

namespace muster::runtime {

Result<void> DeviceInt8Exchange::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    queue_ = terms.device;
    timeout_ = terms.timeout;
    rank_ = static_cast<std::uint32_t>(terms.rank);
    world_ = static_cast<std::uint32_t>(terms.world);
    StagingPlan plan(memory_);
    MUSTER_TRY(residuals_.prepare(terms, buckets, plan));
    staging_.clear();
    for (const auto& bucket : buckets) {
        auto& mine = staging_.emplace_back();
        mine.exchange = this;
        mine.gradients = bucket.gradients;
        if (bucket.gradients.type != DataType::f32) continue;
        mine.piece_elements = int8_piece_elements(bucket.gradients.count, world_);
        const std::size_t piece_bytes = int8_piece_bytes(mine.piece_elements);
        const Buffer all{.data = nullptr, .count = world_ * piece_bytes, .type = DataType::u8};
        plan.add(mine.outgoing, all);
        plan.add(mine.incoming, all);
        plan.add(mine.lost_average, {.data = nullptr, .count = mine.piece_elements, .type = DataType::f32});
    }
    MUSTER_TRY(plan.take(terms));
    for (const auto& mine : staging_) {
        if (mine.lost_average.count == 0) continue;
        MUSTER_TRY(queue_->fill_zero(mine.lost_average.data, mine.lost_average.size_bytes()));
    }
    return residuals_.take_place();
}

Result<std::optional<Operation>> DeviceInt8Exchange::advance(const GradientBucket& bucket, int stage) {
    auto& mine = staging_[bucket.index];
    if (stage == collective_count(bucket)) return std::optional<Operation>();
    if (bucket.gradients.type != DataType::f32)
        return std::optional(all_reduce_weighted(mine.gradients, bucket.samples));
    if (stage == 1) {
        Buffer own = mine.outgoing;
        own.count /= world_;
        own.data = static_cast<std::byte*>(own.data) + rank_ * own.count;
        Operation gather = all_gather(own, mine.outgoing);
        gather.steps = &mine;
        return std::optional(gather);
    }
    const kernels::Int8Encode encode{.gradients = static_cast<float*>(mine.gradients.data),
                                     .lost = static_cast<float*>(residuals_.of(bucket).data),
                                     .count = mine.gradients.count,
                                     .pieces = mine.pieces(mine.outgoing),
                                     .world = world_,
                                     .samples = bucket.samples};
    MUSTER_TRY(kernels::launch(*queue_, encode));
    Operation exchange = all_to_all(mine.outgoing, mine.incoming, static_cast<int>(world_));
    exchange.after = MUSTER_TRY(queue_->mark(bucket.index));
    return std::optional(exchange);
}

kernels::Int8Pieces DeviceInt8Exchange::Staging::pieces(const Buffer& memory) const {
    return {.data = static_cast<std::byte*>(memory.data),
            .elements = piece_elements,
            .bytes = memory.count / exchange->world_};
}

Result<void> DeviceInt8Exchange::Staging::before(KernelQueue& stream) const {
    return kernels::launch(stream, kernels::Int8Average{.incoming = pieces(incoming),
                                                        .outgoing = pieces(outgoing),
                                                        .lost = static_cast<float*>(lost_average.data),
                                                        .world = exchange->world_,
                                                        .rank = exchange->rank_});
}

Result<void> DeviceInt8Exchange::Staging::behind(KernelQueue& stream) const {
    return kernels::launch(stream, kernels::Int8Decode{.pieces = pieces(outgoing),
                                                       .gradients = static_cast<float*>(gradients.data),
                                                       .count = gradients.count,
                                                       .world = exchange->world_});
}

/// Keeps nothing if a copy from the GPU fails: then the communicator has failed, and there is no state to keep.
void DeviceInt8Exchange::keep(std::vector<std::byte>& to) const {
    const std::size_t before = to.size();
    auto kept = residuals_.keep(to);
    for (const auto& mine : staging_) {
        if (kept) kept = keep_device(*queue_, timeout_, mine.lost_average, to);
    }
    if (!kept) to.resize(before);
}

bool DeviceInt8Exchange::restore(std::span<const std::byte> from) {
    auto fits = residuals_.restore(from);
    for (const auto& mine : staging_) {
        if (fits && *fits) fits = restore_device(*queue_, timeout_, mine.lost_average, from);
    }
    return fits && *fits && from.empty();
}

}  // namespace muster::runtime
