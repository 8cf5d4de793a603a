// A rank that is connected with some of its peers waits for the others asleep.
//
// This program has poll() as a function of its own, which counts the waits of one thread.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace {

/// True in the thread whose waits count.
thread_local bool is_counted = false;
/// The sum of the timeouts that were waited for in full.
std::atomic<int> waited_ms = 0;
/// The polls that found nothing and did not wait.
std::atomic<int> idle_polls = 0;

}  // namespace

extern "C" int poll(pollfd* entries, nfds_t count, int timeout) {
    const auto ready = static_cast<int>(::syscall(SYS_poll, entries, count, timeout));
    if (is_counted && ready == 0 && timeout > 0) waited_ms += timeout;
    if (is_counted && ready == 0 && timeout == 0) ++idle_polls;
    return ready;
}

namespace muster {

using namespace runtime;

TEST_CASE("a rank that lacks one of two lower peers sleeps until it probes that one again") {
    // A rank that does not sleep polls so often in a moment. One that does has a few such polls: a time can come
    // between the look at the clock and the poll.
    constexpr int too_many = 1000;
    // More than one interval between probes, which all waits before the first of them can come to.
    constexpr int long_enough_ms = 1500;
    std::atomic<int> polls = -1, faults = 0;
    const auto late = [&, calls = 0]() mutable {
        // The third call: this rank has published its address, and read those of the others.
        if (++calls != 3) return;
        const auto deadline = std::chrono::steady_clock::now() + 120s;
        while (waited_ms < long_enough_ms && idle_polls < too_many && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(1ms);
        polls = waited_ms < long_enough_ms ? too_many : idle_polls.load();
    };
    test::run_as_threads(3, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        if (terms.rank == 1) terms.place = std::make_shared<test::CountedPlace>(given.place, late);
        is_counted = terms.rank == 2;
        const auto world = test::join_over_tcp(terms);
        is_counted = false;
        if (!test::carry_out(*world, barrier())) ++faults;
    });
    CHECK(faults == 0);
    CHECK(polls >= 0);
    CHECK(polls < too_many);
}

}  // namespace muster
