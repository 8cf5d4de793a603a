// Where ranks leave no CPU idle, each runs its large collectives on a CPU of its own, and goes back afterwards.
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/shared_memory/own_cpu.h"

namespace muster {

using namespace runtime;

namespace {

std::set<int> cpus_of(pid_t thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    (void)::sched_getaffinity(thread, sizeof set, &set);
    std::set<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
    return cpus;
}

/// Leaves the calling thread two of its CPUs.
std::set<int> take_two_cpus() {
    cpu_set_t two;
    CPU_ZERO(&two);
    for (const int cpu : cpus_of(0))
        if (CPU_COUNT(&two) < 2) CPU_SET(cpu, &two);
    (void)::sched_setaffinity(0, sizeof two, &two);
    return cpus_of(0);
}

}  // namespace

TEST_CASE("each rank has a CPU of its own while ranks are as many as CPUs") {
    const auto before = cpus_of(0);
    const int cpus = static_cast<int>(before.size());
    if (cpus < 2) {
        WARN("skipped: this process has one CPU");
        return;
    }
    std::set<int> taken;
    for (int rank = 0; rank < cpus; ++rank) {
        OwnCpu own(rank, cpus);
        own.bind();
        CHECK(cpus_of(0).size() == 1);
        taken.merge(cpus_of(0));
    }
    CHECK(taken == before);
    {
        OwnCpu own(cpus + 1, cpus + 2);
        own.bind();
        CHECK(cpus_of(0) == std::set{*std::next(before.begin())});
    }
    OwnCpu none(0, cpus - 1);
    none.bind();
    CHECK(cpus_of(0) == before);
}

TEST_CASE("a large collective, and one that waits, bind the thread of their rank until they are over or have failed") {
    if (cpus_of(0).size() < 2) {
        WARN("skipped: this process has one CPU");
        return;
    }
    std::atomic<pid_t> first = 0;
    test::Findings findings;
    test::run_as_threads(2, [&](const GroupTerms& terms) {
        const auto before = take_two_cpus();
        auto world = test::join_shared_group(terms);
        for (const bool fails : {false, true}) {
            std::vector<float> values(fails ? 1 : (1u << 20) / sizeof(float));
            if (terms.rank == 0) {
                first = ::gettid();
                const auto done = world.run(all_reduce(buffer(std::span(values)), ReduceOp::sum));
                findings.expect(done.has_value() != fails, "the result");
                findings.expect(cpus_of(0) == before, "bound afterwards");
                continue;
            }
            const auto limit = std::chrono::steady_clock::now() + 60s;
            while ((first == 0 || cpus_of(first).size() != 1) && std::chrono::steady_clock::now() < limit)
                std::this_thread::yield();
            findings.expect(cpus_of(first) == std::set{*before.begin()}, "not bound");
            if (fails) return;  // the group ends
            first = 0;
            findings.expect(world.run(all_reduce(buffer(std::span(values)), ReduceOp::sum)), "all_reduce");
            findings.expect(cpus_of(0) == before, "bound afterwards");
        }
    });
    CHECK(findings.text() == "");
}

}  // namespace muster
