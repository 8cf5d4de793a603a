// The threads that help a rank, alone and under collectives of ranks that are killed.
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tests/integration/runtime/shared_group.h"
#include "tests/integration/runtime/threads_wish.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/ranks.h"
#include "tests/support/skip.h"
#include "worker_runtime/shared_memory/helper_threads.h"

namespace muster {

using namespace runtime;
using test::ThreadsWish;

namespace {

constexpr std::size_t enough = HelperThreads::touched_bytes_min;  // so many bytes of one array

/// How often each element was made.
std::vector<int> tallies(HelperThreads& helpers, std::size_t count) {
    std::vector<int> made(count);
    helpers.run(count, 1, 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) ++made[i];
    });
    return made;
}

bool all_once(const std::vector<int>& made) {
    return std::all_of(made.begin(), made.end(), [](int times) { return times == 1; });
}

struct ThreadState {
    int rounding;
    bool blocks_signals;
};

/// Waits inside the work until another thread is at it, too. So the test needs no luck with the cores.
std::map<std::thread::id, ThreadState> threads_of_one_run(HelperThreads& helpers) {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::thread::id, ThreadState> seen;
    helpers.run(2 * enough, 1, 1, [&](std::size_t, std::size_t) {
        sigset_t mask;
        ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        std::unique_lock lock(mutex);
        seen[std::this_thread::get_id()] = {std::fegetround(), sigismember(&mask, SIGTERM) == 1};
        changed.notify_all();
        changed.wait_for(lock, 60s, [&] { return seen.size() > 1; });
    });
    return seen;
}

/// The CPUs that this thread may use.
cpu_set_t own_cpus() {
    cpu_set_t set;
    REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
    return set;
}

/// False, with a skip, where no helper starts.
bool has_two_cpus() {
    const auto cpus = own_cpus();
    if (CPU_COUNT(&cpus) > 1) return true;
    test::skip("helpers need a second CPU");
    return false;
}

bool may_start_threads_in_child() {
    if (test::under_thread_sanitizer) WARN("skipped: the thread sanitizer allows no threads in a forked child");
    return !test::under_thread_sanitizer;
}

/// In a child of one thread, bound to `count` of `cpus`: how many it has with helpers that wished for 4.
int threads_when_bound(const cpu_set_t& cpus, int count) {
    const pid_t child = ::fork();
    if (child == 0) {
        cpu_set_t some;
        CPU_ZERO(&some);
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < count; ++cpu)
            if (CPU_ISSET(cpu, &cpus)) CPU_SET(cpu, &some);
        if (::sched_setaffinity(0, sizeof some, &some) != 0) ::_exit(100);
        HelperThreads helpers(4);
        if (!all_once(tallies(helpers, enough))) ::_exit(101);
        const std::filesystem::directory_iterator threads("/proc/self/task");
        ::_exit(static_cast<int>(std::distance(begin(threads), end(threads))));
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("each element is made once, whatever the number of threads and elements") {
    for (const int threads : {1, 2, 3, 4}) {
        HelperThreads helpers(threads);
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, enough - 1, enough, 2 * enough + 77})
            CHECK(all_once(tallies(helpers, count)));
    }
}

TEST_CASE("a helper takes part, under a mask of all signals, and ends with its owner") {
    if (!has_two_cpus()) return;
    HelperThreads helpers(2);
    const auto seen = threads_of_one_run(helpers);
    CHECK(seen.size() == 2);
    for (const auto& [thread, state] : seen)
        if (thread != std::this_thread::get_id()) CHECK(state.blocks_signals);
}

TEST_CASE("a helper computes as the thread that it helps does") {
    if (!has_two_cpus()) return;
    HelperThreads helpers(2);
    for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO, FE_TONEAREST}) {
        std::fesetround(mode);
        const auto seen = threads_of_one_run(helpers);
        std::fesetround(FE_TONEAREST);
        CHECK(seen.size() == 2);
        for (const auto& [thread, state] : seen) CHECK(state.rounding == mode);
    }
}

TEST_CASE("no more helpers start than there are CPUs for them") {
    if (!may_start_threads_in_child()) return;
    const auto cpus = own_cpus();
    for (const int count : {1, 2, 3})
        if (CPU_COUNT(&cpus) >= count) CHECK(threads_when_bound(cpus, count) == count);
}

TEST_CASE("threads that run work at once all get theirs done") {
    HelperThreads helpers(3);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i)
        callers.emplace_back([&] {
            for (int run = 0; run < 20; ++run)
                if (!all_once(tallies(helpers, enough + 5))) ++wrong;
        });
    for (auto& caller : callers) caller.join();
    CHECK(wrong == 0);
}

TEST_CASE("the process's helpers end with the last group, and a forked child has its own") {
    const ThreadsWish wish("2");
    auto helpers = HelperThreads::of_process();
    CHECK(HelperThreads::of_process() == helpers);
    CHECK(all_once(tallies(*helpers, enough)));
    if (may_start_threads_in_child()) {
        const pid_t child = ::fork();
        if (child == 0) {
            auto own = HelperThreads::of_process();
            ::_exit(own != helpers && all_once(tallies(*own, enough)) ? 0 : 1);
        }
        int status = -1;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    const std::weak_ptr<HelperThreads> old = helpers;
    helpers.reset();
    CHECK(old.expired());
    CHECK(all_once(tallies(*HelperThreads::of_process(), enough)));
}

TEST_CASE("a wrong number of threads means one") {
    for (const char* const wrong : {"0", "65", "-1", "two", "2x"}) {
        const ThreadsWish wish(wrong);
        std::set<std::thread::id> seen;
        HelperThreads::of_process()->run(2 * enough, 1, 1,
                                         [&](std::size_t, std::size_t) { seen.insert(std::this_thread::get_id()); });
        CHECK(seen.size() == 1);
    }
}

TEST_CASE("a rank that is killed while helpers are at work is named, and the next round's group works") {
    for (int round = 0; round < 2; ++round) {
        test::RankProcesses ranks(3, [&](const GroupTerms& terms) {
            const ThreadsWish wish("3");
            auto world = test::join_shared_group(terms);
            const std::size_t bytes = 4 * enough;
            auto memory = world.allocate(bytes).value();
            const std::span values(reinterpret_cast<float*>(memory.data()), bytes / sizeof(float));
            std::atomic<int> finished = 0;
            std::thread killer;
            if (terms.rank == 1)
                killer = std::thread([&] {
                    // Then every rank has finished two and has its helpers.
                    for (int now = finished; now < 3; now = finished) finished.wait(now);
                    ::kill(::getpid(), SIGKILL);
                });
            for (;; ++finished, finished.notify_one()) {
                const auto done = world.run(all_reduce(buffer(values), ReduceOp::max));
                if (done) continue;
                if (finished == 0) return 2;  // no helper was ever needed
                return done.error().context.find("rank 1 (pid ") != std::string::npos ? 0 : 1;
            }
        });
        const auto ends = ranks.join();
        for (const int rank : {0, 2}) {
            const auto& end = ends[static_cast<std::size_t>(rank)];
            CHECK((end.exited && end.code == 0));
        }
    }
}

}  // namespace muster
