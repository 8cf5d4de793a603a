#include <utility>
#include <variant>

#include "worker_runtime/core/optimizer_math.h"
#include "worker_runtime/kernels/launch.h"
#include "worker_runtime/optimizer/shard_math.h"

namespace muster::runtime {

namespace {

class DeviceShards final : public ShardMath {
  public:
    DeviceShards(DeviceQueue& queue, Duration timeout) : queue_(queue), timeout_(timeout) {}

    Result<void> take(Communicator& communicator, std::size_t count) override {
        auto memory = communicator.allocate(count * sizeof(float));
        if (!memory) return with_context(memory.error(), "memory for a sharded optimizer");
        memory_ = std::move(*memory);
        return {};
    }
    std::span<float> next(std::size_t count) override {
        auto* const begin = reinterpret_cast<float*>(memory_.data()) + used_;
        used_ += count;
        return {begin, count};
    }

    Result<void> load(const ConstBuffer& parameter, const Buffer& room, std::span<float> values) override {
        if (room.type == DataType::f32) return queue_.copy(values.data(), parameter.data, room.size_bytes());
        auto done = queue_.copy(room.data, parameter.data, room.size_bytes());
        if (done) {
            done = kernels::launch(queue_, kernels::Widen{.from = static_cast<const std::uint16_t*>(room.data),
                                                          .to = values.data(),
                                                          .count = values.size(),
                                                          .type = room.type});
        }
        return done ? queue_.fill_zero(room.data, room.size_bytes()) : done;
    }

    Result<void> update(const OptimizerRule& rule, std::uint64_t number, const Buffer& gradient,
                        const OptimizerPiece& piece) override {
        return std::visit([&](const auto& one) { return put(numbers_of(one, number), gradient, piece); }, rule);
    }

    Result<void> store(std::span<float> values, const Buffer& to) override {
        if (to.type == DataType::f32) return queue_.copy(to.data, values.data(), to.size_bytes());
        return kernels::launch(queue_, kernels::Narrow{.from = values.data(),
                                                       .to = static_cast<std::uint16_t*>(to.data),
                                                       .given = values.size(),
                                                       .count = values.size(),
                                                       .type = to.type});
    }
    Result<void*> mark(std::size_t number) override { return queue_.mark(number); }
    Result<void> hand_out(const ConstBuffer& from, void* to) override {
        return queue_.copy(to, from.data, from.count * size_of(from.type));
    }
    Result<void> finish() override { return queue_.finish(timeout_); }

  private:
    Result<void> put(const SgdNumbers& numbers, const Buffer& gradient, const OptimizerPiece& piece) {
        return kernels::launch(queue_,
                               kernels::SgdUpdate{.gradient = gradient.data,
                                                  .values = piece.values.data(),
                                                  .velocity = piece.first.empty() ? nullptr : piece.first.data(),
                                                  .count = gradient.count,
                                                  .numbers = numbers,
                                                  .type = gradient.type});
    }
    Result<void> put(const AdamNumbers& numbers, const Buffer& gradient, const OptimizerPiece& piece) {
        return kernels::launch(queue_, kernels::AdamUpdate{.gradient = gradient.data,
                                                           .values = piece.values.data(),
                                                           .first = piece.first.data(),
                                                           .second = piece.second.data(),
                                                           .count = gradient.count,
                                                           .numbers = numbers,
                                                           .type = gradient.type});
    }

    DeviceQueue& queue_;
    Duration timeout_;
    Memory memory_;
    std::size_t used_ = 0;
};

}  // namespace

std::unique_ptr<ShardMath> make_device_shards(DeviceQueue& queue, Duration timeout) {
    return std::make_unique<DeviceShards>(queue, timeout);
}

}  // namespace muster::runtime
