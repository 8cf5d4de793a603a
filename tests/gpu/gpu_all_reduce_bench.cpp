// All-reduce on GPUs: one rank for each that CUDA sees (or as many as the first argument says), f32, in registered
// memory, through the whole of the runtime. One line for each size: median, least and most time, and the rates that
// nccl-tests call algbw and busbw.
//
//   gpu_all_reduce_bench [RANKS [LARGEST_MIB]]
//
// With one GPU the figures are those of our own path: NCCL copies nothing in a world of one.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/gpu_ranks.h"
#include "tests/support/ranks.h"

namespace muster {

namespace {

constexpr std::size_t smallest_bytes = 4 << 10;
constexpr int warm_up_count = 5;
constexpr int run_count = 20;

int run_rank(const runtime::GroupTerms& group, std::size_t largest_bytes) {
    const auto fail = [&](const Error& error) {
        std::fprintf(stderr, "rank %d: %s\n", group.rank, error.context.c_str());
        return 1;
    };
    auto world = test::join_gpu_group(group, group.rank);
    if (!world) return fail(world.error());
    auto memory = world->allocate(largest_bytes);
    if (!memory) return fail(memory.error());
    if (group.rank == 0)
        std::printf("%12s %10s %10s %10s %8s %8s\n", "bytes", "median us", "least", "most", "algbw", "busbw");
    for (std::size_t bytes = smallest_bytes; bytes <= largest_bytes; bytes *= 4) {
        const Buffer whole{.data = memory->data(), .count = bytes / sizeof(float), .type = DataType::f32};
        std::vector<double> us;
        for (int i = 0; i < warm_up_count + run_count; ++i) {
            if (const auto met = world->run(barrier()); !met) return fail(met.error());
            const auto began = std::chrono::steady_clock::now();
            if (const auto done = world->run(all_reduce(whole, ReduceOp::sum)); !done) return fail(done.error());
            const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
            if (i >= warm_up_count) us.push_back(took.count());
        }
        std::sort(us.begin(), us.end());
        const double rate = static_cast<double>(bytes) / us[us.size() / 2] * 1e-3;
        const double links = 2.0 * (group.size - 1) / group.size;
        if (group.rank == 0) {
            std::printf("%12zu %10.1f %10.1f %10.1f %8.2f %8.2f\n", bytes, us[us.size() / 2], us.front(), us.back(),
                        rate, rate * links);
        }
    }
    std::fflush(stdout);
    return 0;
}

}  // namespace

}  // namespace muster

int main(int argc, char** argv) {
    if (argc > 1 && std::string_view(argv[1]) == "--help") {
        std::puts("gpu_all_reduce_bench [RANKS [LARGEST_MIB]]");
        return 0;
    }
    std::string about;
    const int gpus = muster::test::gpu_count(about);
    std::printf("%s, %d GPUs\n", about.c_str(), gpus);
    if (gpus == 0) return 77;
    const int size = argc > 1 ? std::atoi(argv[1]) : gpus;
    const std::size_t largest_bytes = static_cast<std::size_t>(argc > 2 ? std::atoi(argv[2]) : 256) << 20;
    muster::test::RankProcesses ranks(
        size, [=](const muster::runtime::GroupTerms& group) { return muster::run_rank(group, largest_bytes); });
    for (const auto& end : ranks.join(std::chrono::seconds(240))) {
        if (!end.exited || end.code != 0) return 1;
    }
    return 0;
}
