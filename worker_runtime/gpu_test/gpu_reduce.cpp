#include "worker_runtime/gpu_test/gpu_reduce.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "muster/context.h"
#include "worker_runtime/gpu_test/record.h"
#include "worker_runtime/gpu_test/test_device.h"

namespace muster::runtime {

namespace {

constexpr std::size_t element_count = std::size_t{16} << 20;
constexpr int round_count = 8;
constexpr Duration reduce_limit = 20s;

/// Whole numbers, so that the sum is exact in any order.
float element_of(std::size_t i, int factor) {
    return static_cast<float>(static_cast<int>(i % 97) * factor);
}

/// One all_reduce of `sent`: its time, and the number of wrong sums.
Result<std::pair<double, std::size_t>> reduce_once(Communicator& world, TestDevice& device, float* memory,
                                                   const std::vector<float>& sent, std::vector<float>& received) {
    constexpr std::size_t bytes = element_count * sizeof(float);
    auto done = device.copy(memory, sent.data(), bytes);
    if (done) done = device.finish();
    if (!done) return done.error();
    const auto begin = std::chrono::steady_clock::now();
    done = world.run(all_reduce(buffer(std::span(memory, element_count)), ReduceOp::sum), reduce_limit);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (done) done = device.copy(received.data(), memory, bytes);
    if (done) done = device.finish();
    if (!done) return done.error();
    const int factor = world.size() * (world.size() + 1) / 2;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < element_count; ++i) wrong += received[i] != element_of(i, factor) ? 1 : 0;
    return std::pair{took.count(), wrong};
}

}  // namespace

Result<void> reduce_between_gpus() {
    auto context = Context::from_environment({.meeting_timeout = reduce_limit, .transport = TransportChoice::nccl});
    if (!context) return context.error();
    auto& world = context->world();
    auto device = TestDevice::open(context->device());
    if (!device) return device.error();
    auto memory = (*device)->allocate(element_count * sizeof(float));
    auto total = (*device)->allocate(sizeof(float));
    if (!memory || !total) return memory ? total.error() : memory.error();
    std::vector<float> sent(element_count), received(element_count);
    for (std::size_t i = 0; i < element_count; ++i) sent[i] = element_of(i, world.rank() + 1);
    double best = 0;
    std::size_t wrong = 0;
    for (int i = 0; i < round_count; ++i) {
        const auto one = reduce_once(world, **device, memory->as<float>(), sent, received);
        if (!one) return one.error();
        best = i == 0 ? one->first : std::min(best, one->first);
        wrong += one->second;
    }
    auto sum = static_cast<float>(wrong);
    auto done = (*device)->copy(total->as<void>(), &sum, sizeof sum);
    if (done) done = (*device)->finish();
    if (done) done = world.run(all_reduce(buffer(std::span(total->as<float>(), 1)), ReduceOp::sum), reduce_limit);
    if (done) done = (*device)->copy(&sum, total->as<void>(), sizeof sum);
    if (done) done = (*device)->finish();
    if (!done || world.rank() != 0) return done;
    const double moved = 2.0 * (world.size() - 1) / world.size() * static_cast<double>(element_count * sizeof(float));
    print_record(cat("reduced", field("gpus", world.size()), field("wrong", static_cast<std::uint64_t>(sum)),
                     field("mbytes-per-s", static_cast<std::uint64_t>(moved / best / 1e6))));
    return {};
}

}  // namespace muster::runtime
