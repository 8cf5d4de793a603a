// One rank of scripts/bench/death and failures, under `muster`: all_reduces until a peer's death or absence ends them.
//
//   death_rank RESIDENT_MIB [SECONDS]   rank 1 first touches so much memory; SECONDS: the deadline of each all_reduce.
//                                       Each rank prints "RANK PID ready" and, at the failure, "RANK failed NANOSECONDS
//                                       WHY" on the monotonic clock.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "muster/context.h"

int main(int argc, char** argv) {
    ::signal(SIGTERM, SIG_IGN);  // the launcher's, which follows the death; the failure itself is what is timed
    auto context = muster::Context::from_environment();
    if (!context) {
        std::fprintf(stderr, "%s\n", context.error().context.c_str());
        return 1;
    }
    const std::size_t resident = argc > 1 ? std::strtoull(argv[1], nullptr, 10) << 20 : 0;
    std::vector<char> memory;
    if (context->rank() == 1) memory.assign(resident, 1);
    std::vector<float> data(100'000);
    auto& world = context->world();
    auto done = world.run(muster::barrier());
    // As many operations as an agent wants to have seen before it says that a rank is missing from one.
    for (int i = 0; i < 20 && done; ++i)
        done = world.run(muster::all_reduce(muster::buffer(std::span(data)), muster::ReduceOp::sum));
    std::printf("%d %d ready\n", context->rank(), static_cast<int>(::getpid()));
    std::fflush(stdout);
    const muster::Duration timeout = argc > 2 ? std::chrono::seconds(std::atoi(argv[2])) : world.timeout();
    while (done) done = world.run(muster::all_reduce(muster::buffer(std::span(data)), muster::ReduceOp::sum), timeout);
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    std::printf("%d failed %lld %s\n", context->rank(),
                static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()),
                done.error().context.c_str());
    return 0;
}
