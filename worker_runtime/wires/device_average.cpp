#include "worker_runtime/wires/device_average.h"

#include <algorithm>

#include "worker_runtime/kernels/launch.h"

namespace muster::runtime {

void DeviceAverage::prepare(const ExchangeTerms& terms, StagingPlan& plan) {
    rank_ = static_cast<std::size_t>(terms.rank);
    world_ = static_cast<std::size_t>(terms.world);
    samples_ = terms.weights;
    plan.add(weights_, {.data = nullptr, .count = world_, .type = DataType::f32});
}

void DeviceAverage::add(Leg& leg, std::size_t count, StagingPlan& plan) const {
    // Pieces begin at cache lines.
    const std::size_t line = gradient_alignment_bytes / size_of(type_);
    const std::size_t piece = ((count + world_ - 1) / world_ + line - 1) / line * line;
    const Buffer all{.data = nullptr, .count = world_ * piece, .type = type_};
    plan.add(leg.numbers, all);
    plan.add(leg.incoming, all);
}

Operation DeviceAverage::first(const Leg& leg) const {
    return all_to_all(leg.numbers, leg.incoming, static_cast<int>(world_));
}

Operation DeviceAverage::second(const Leg& leg) const {
    return all_gather(own_piece(leg), leg.numbers);
}

Buffer DeviceAverage::own_piece(const Leg& leg) const {
    Buffer piece = leg.numbers;
    piece.count /= world_;
    piece.data = static_cast<std::byte*>(piece.data) + rank_ * piece.size_bytes();
    return piece;
}

Result<void> DeviceAverage::make(const Leg& leg, KernelQueue& stream) const {
    auto* const weights = static_cast<float*>(weights_.data);
    for (std::size_t at = 0; at < world_; at += kernels::PutNumbers::most) {
        kernels::PutNumbers put{
            .values = {}, .to = weights + at, .count = std::min<std::size_t>(kernels::PutNumbers::most, world_ - at)};
        std::copy_n(samples_ + at, put.count, put.values);
        if (auto done = kernels::launch(stream, put); !done) return done;
    }
    float sum = samples_[0];
    for (std::size_t rank = 1; rank < world_; ++rank) sum += samples_[rank];
    const Buffer own = own_piece(leg);
    const auto average = [&]<class T>(T*) {
        return kernels::launch(stream, kernels::Average<T>{.pieces = static_cast<const T*>(leg.incoming.data),
                                                           .weights = weights,
                                                           .to = static_cast<T*>(own.data),
                                                           .count = own.count,
                                                           .world = static_cast<std::uint32_t>(world_),
                                                           .reciprocal = 1 / sum,
                                                           .type = type_});
    };
    return type_ == DataType::f32 ? average(static_cast<float*>(nullptr))
                                  : average(static_cast<std::uint16_t*>(nullptr));
}

}  // namespace muster::runtime
