#include "worker_runtime/gpu_test/gpu_reduce.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "muster/context.h"
#include "worker_runtime/gpu_test/record.h"
#include "worker_runtime/gpu_test/test_device.h"

namespace muster::runtime {

namespace {

/// The larger size is taken where the smaller one takes less than `quick_s` on all ranks.
constexpr std::size_t few_elements = std::size_t{1} << 18, many_elements = std::size_t{16} << 20;
constexpr double quick_s = 0.01;
constexpr int round_count = 8;
constexpr Duration reduce_limit = 20s;

/// Whole numbers, so that the sum is exact in any order.
float element_of(std::size_t i, int factor) {
    return static_cast<float>(static_cast<int>(i % 97) * factor);
}

struct Reduced {
    double best_s = 0;
    std::size_t wrong = 0;
};

class GpuRank {
  public:
    GpuRank(Communicator& world, TestDevice& device, DeviceMemory memory)
        : world_(world), device_(device), memory_(std::move(memory)), sent_(many_elements), received_(many_elements) {
        for (std::size_t i = 0; i < many_elements; ++i) sent_[i] = element_of(i, world.rank() + 1);
    }

    /// Some sums of the first `count` elements.
    Result<Reduced> reduce(std::size_t count) {
        Reduced all;
        for (int i = 0; i < round_count; ++i) {
            const auto took = MUSTER_TRY(sum(sent_.data(), count, ReduceOp::sum));
            all.best_s = i == 0 ? took : std::min(all.best_s, took);
            const int factor = world_.size() * (world_.size() + 1) / 2;
            for (std::size_t k = 0; k < count; ++k) all.wrong += received_[k] != element_of(k, factor) ? 1 : 0;
        }
        return all;
    }
    /// One number of all ranks.
    Result<double> agree(double own, ReduceOp operation) {
        const auto number = static_cast<float>(own);
        MUSTER_TRY(sum(&number, 1, operation));
        return static_cast<double>(received_[0]);
    }

  private:
    /// Copies, combines, copies back. Returns the time of the collective.
    Result<double> sum(const float* from, std::size_t count, ReduceOp operation) {
        auto* const there = memory_.as<float>();
        MUSTER_TRY(device_.copy(there, from, count * sizeof(float)));
        MUSTER_TRY(device_.finish());
        const auto begin = std::chrono::steady_clock::now();
        MUSTER_TRY(world_.run(all_reduce(buffer(std::span(there, count)), operation), reduce_limit));
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        MUSTER_TRY(device_.copy(received_.data(), there, count * sizeof(float)));
        MUSTER_TRY(device_.finish());
        return took.count();
    }

    Communicator& world_;
    TestDevice& device_;
    DeviceMemory memory_;
    std::vector<float> sent_, received_;
};

}  // namespace

Result<void> reduce_between_gpus() {
    auto context =
        MUSTER_TRY(Context::from_environment({.meeting_timeout = reduce_limit, .transport = TransportChoice::nccl}));
    auto& world = context.world();
    auto device = MUSTER_TRY(TestDevice::open(context.device()));
    auto memory = MUSTER_TRY(device->allocate(many_elements * sizeof(float)));
    GpuRank rank(world, *device, std::move(memory));
    auto count = few_elements;
    auto reduced = MUSTER_TRY(rank.reduce(count));
    auto wrong = reduced.wrong;
    const auto slowest = MUSTER_TRY(rank.agree(reduced.best_s, ReduceOp::max));
    if (slowest < quick_s) {
        count = many_elements;
        reduced = MUSTER_TRY(rank.reduce(count));
        wrong += reduced.wrong;
    }
    const auto all_wrong = MUSTER_TRY(rank.agree(static_cast<double>(wrong), ReduceOp::sum));
    if (world.rank() != 0) return {};
    const auto bytes = count * sizeof(float);
    const double moved = 2.0 * (world.size() - 1) / world.size() * static_cast<double>(bytes);
    print_record(cat("reduced", field("gpus", world.size()), field("mib", bytes >> 20),
                     field("wrong", static_cast<std::uint64_t>(all_wrong)),
                     field("mbytes-per-s", static_cast<std::uint64_t>(moved / reduced.best_s / 1e6))));
    return {};
}

}  // namespace muster::runtime
