// How long a daemon needs for large rounds: N agents, each a real connection of this process.
//
//   join     they say Hello and Join; from the last join's write to the last assignment's arrival
//   lost     a guardian says that its node is gone; from its word until all others are in the next round
//   failed   one agent's worker failed; the same
//
// After a round's end every agent reports and joins again as soon as it hears of it: stopping workers takes no time
// here. See tests/integration/net/CMakeLists.txt.
//
//   swarm PORT N [N ...]      one job for each N, against 127.0.0.1:PORT; prints one line of JSON for each
//
// With MUSTER_KEY they speak TLS, and a join begins with its first word.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "scripts/bench/swarm.h"

namespace {

using namespace muster::bench;

struct Timing {
    double assigned_ms = 0;
    double lost_ms = 0;
    double failed_ms = 0;
};

Timing run(std::uint16_t port, std::uint32_t count) {
    const char* const secret = std::getenv("MUSTER_KEY");
    Swarm swarm(port, count, secret == nullptr ? "" : secret);
    Timing timing;
    swarm.connect();
    swarm.join();
    timing.assigned_ms = swarm.settle(0, Clock::now());
    const auto lost = Clock::now();
    swarm.lose_one();
    timing.lost_ms = swarm.settle(1, lost);
    const auto failed = Clock::now();
    swarm.fail_one();
    timing.failed_ms = swarm.settle(2, failed);
    return timing;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: swarm PORT N [N ...]\n");
        return 2;
    }
    raise_open_files();
    for (int i = 2; i < argc; ++i) {
        const auto count = static_cast<std::uint32_t>(std::atoi(argv[i]));
        if (count < 2) {
            std::fprintf(stderr, "swarm: %s agents: at least 2 are needed, one of them to be lost\n", argv[i]);
            return 2;
        }
        const Timing timing = run(static_cast<std::uint16_t>(std::atoi(argv[1])), count);
        std::printf("{\"agents\": %u, \"assigned_ms\": %.1f, \"lost_ms\": %.1f, \"failed_ms\": %.1f}\n", count,
                    timing.assigned_ms, timing.lost_ms, timing.failed_ms);
        std::fflush(stdout);
    }
    return 0;
}
