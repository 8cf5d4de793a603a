// What it costs a daemon that agents tell it of their workers, and it all of them who hangs: N agents of 8 workers in
// one round, for a while each
//
//   pings     nothing but the heartbeats of a lease of 5 s, at the pace of so many nodes
//   usual     the workers train: each agent tells of them every ten seconds, as it does
//   hang      one after another they hang: every ten seconds another node's rank does not come. All the others say at
//             once, within the second in which they look, that they wait, and again every ten seconds
//
//   swarm_traffic PORT PID SECONDS N [N ...]     PID is the daemon's; a line of JSON for each phase of each N
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "rendezvous/client/core/clock_offset.h"
#include "rendezvous/wire/native/heartbeat_pace.h"
#include "scripts/bench/swarm.h"

namespace {

using namespace muster;
using namespace muster::bench;
using native::WorkerPace;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t workers = 8;
constexpr auto lease = seconds(5);
constexpr auto seen_pause = seconds(10);  // agent/evidence/hang_watcher.cpp

/// `away`: its first worker does not come; the others wait for one of another node.
native::WorkersSeen seen_of(std::uint32_t index, WorkerPace pace, bool away) {
    native::WorkersSeen seen{.round = 0, .workers = {}};
    for (std::uint32_t i = 0; i < workers; ++i) {
        const auto rank = static_cast<std::int32_t>(index * workers + i);
        const bool waits = pace == WorkerPace::waiting && !(away && i == 0);
        WorkerActivity at;
        at.rank = rank;
        at.pid = 4'000'000 + rank;
        at.idle_ms = waits ? 6'000 : 0;
        at.state = "asleep in futex_wait_queue, step 123456 done";
        at.inside = waits;
        at.operation = waits ? "all_reduce 123457 of world" : "all_reduce 123456 of world";
        if (waits) at.place = "train_step (train.py:123)";
        seen.workers.push_back({at, away && i == 0 ? WorkerPace::overdue : pace, 40});
    }
    return seen;
}

/// Every agent is due once in `pause`, one after another: the k-th of them all at k * pause / count.
class Turns {
  public:
    Turns(std::uint32_t count, Clock::duration pause) : count_(count), pause_(pause) {}
    /// Calls say(agent, its how manieth turn) for those that are due by then.
    void take(Clock::duration since, auto say) {
        for (; next_ * pause_ / count_ <= since; ++next_)
            say(static_cast<std::uint32_t>(next_ % count_), static_cast<std::uint32_t>(next_ / count_));
    }

  private:
    std::uint32_t count_;
    Clock::duration pause_;
    std::int64_t next_ = 0;
};

enum class Phase { pings, usual, hang };

void speak(Swarm& swarm, Phase phase, Clock::duration length) {
    const auto count = swarm.count();
    const auto start = Clock::now();
    Turns pings(count, native::heartbeat_pace(lease, count)), words(count, seen_pause),
        first_messages(count, seconds(1)), news(1, seen_pause);
    std::uint32_t sequence = 0;
    while (Clock::now() - start < length) {
        const auto since = Clock::now() - start;
        pings.take(since, [&](std::uint32_t agent, std::uint32_t) {
            swarm.say(agent, native::Ping{++sequence, rendezvous::clock_ns(Clock::now())});
        });
        if (phase == Phase::usual)
            words.take(since, [&](std::uint32_t agent, std::uint32_t) {
                swarm.say(agent, seen_of(agent, WorkerPace::usual, false));
            });
        if (phase == Phase::hang) {
            const auto away = [&](std::uint32_t agent) { return agent > 0 && since >= (agent - 1) * seen_pause; };
            const auto hangs = [&](std::uint32_t agent, std::uint32_t) {
                swarm.say(agent, seen_of(agent, WorkerPace::waiting, away(agent)));
            };
            if (since < seconds(1)) first_messages.take(since, hangs);
            words.take(since, hangs);
            news.take(since, [&](std::uint32_t, std::uint32_t turn) {
                if (turn + 1 < count) hangs(turn + 1, 0);
            });
        }
        swarm.receive_until(Clock::now() + milliseconds(1));
    }
}

void measure(Swarm& swarm, const char* daemon, Phase phase, const char* name, seconds length) {
    const auto said = swarm.said(), heard = swarm.heard(), told = swarm.job_seen();
    const double cpu = cpu_of(daemon);
    const auto start = Clock::now();
    speak(swarm, phase, length);
    // On a busy host the daemon may be late.
    const auto all_told = told.messages + swarm.count();
    for (const auto end = Clock::now() + seconds(20); phase == Phase::hang && swarm.job_seen().messages < all_told;) {
        if (Clock::now() > end) fail("not every agent was told who hangs");
        swarm.receive_until(Clock::now() + milliseconds(10));
    }
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    const auto rate = [&](std::uint64_t now, std::uint64_t before) { return static_cast<double>(now - before) / took; };
    std::printf(
        "{\"agents\": %u, \"phase\": \"%s\", \"seconds\": %.2f, \"said_per_s\": %.1f, \"said_bytes_per_s\": %.0f, "
        "\"heard_per_s\": %.1f, \"heard_bytes_per_s\": %.0f, \"job_seen\": %llu, \"job_seen_bytes\": %llu, "
        "\"cpu_percent\": %.2f}\n",
        swarm.count(), name, took, rate(swarm.said().messages, said.messages), rate(swarm.said().bytes, said.bytes),
        rate(swarm.heard().messages, heard.messages), rate(swarm.heard().bytes, heard.bytes),
        static_cast<unsigned long long>(swarm.job_seen().messages - told.messages),
        static_cast<unsigned long long>(swarm.job_seen().bytes - told.bytes), 100 * (cpu_of(daemon) - cpu) / took);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) {
        std::fprintf(stderr, "usage: swarm_traffic PORT PID SECONDS N [N ...]\n");
        return 2;
    }
    raise_open_files();
    const seconds length(std::atoi(argv[3]));
    for (int i = 4; i < argc; ++i) {
        Swarm swarm(static_cast<std::uint16_t>(std::atoi(argv[1])), static_cast<std::uint32_t>(std::atoi(argv[i])));
        swarm.connect();
        swarm.join();
        swarm.settle(0, Clock::now());
        measure(swarm, argv[2], Phase::pings, "pings", length);
        measure(swarm, argv[2], Phase::usual, "usual", length);
        measure(swarm, argv[2], Phase::hang, "hang", length);
    }
    return 0;
}
