// How a communicator hands operations to its threads, whatever carries them.
#include "muster/communicator.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/thread_group.h"

using namespace muster;
using namespace muster::test;

namespace {

/// Waits, a minute at most, until a thread of this process sleeps.
void wait_until_asleep(int thread) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (std::chrono::steady_clock::now() < deadline) {
        std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
        std::string number, name, state;
        stat >> number >> name >> state;
        if (state == "S") return;
        std::this_thread::yield();
    }
}

/// Waits, a minute at most, for a thread of that name; 0 when there is none.
int wait_for_thread(const std::string& name) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (std::chrono::steady_clock::now() < deadline) {
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string comm;
            std::ifstream(task.path() / "comm") >> comm;
            if (comm == name) return std::stoi(task.path().filename());
        }
        std::this_thread::yield();
    }
    return 0;
}

}  // namespace

TEST_CASE("a communicator that goes right after its work was waited for aborts nobody") {
    for (int i = 0; i < 300; ++i) {
        ThreadGroup group(1);
        const auto wrong = group.run([](Communicator& communicator) {
            Work work = communicator.start(barrier());
            return work.wait() ? "" : "the barrier failed";
        });
        CHECK(wrong == "");
        REQUIRE_FALSE(group.aborted());
    }
}

TEST_CASE("allocate() waits for work in progress, and goes on when it is over") {
    ThreadGroup group(1);
    group.hold();
    std::thread later;
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        Work first = communicator.start(barrier());
        Work second = communicator.start(barrier());
        later = std::thread([&group] {
            std::this_thread::yield();
            group.let_go();
        });
        const auto memory = communicator.allocate(4096);
        if (!memory) return memory.error().context;
        return first.done() && second.done() ? "" : "memory came before the work was over";
    });
    CHECK(wrong == "");
    later.join();
}

TEST_CASE("allocate() waits for an operation in another thread, and goes on when it is over") {
    ThreadGroup group(1);
    group.hold();
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        std::thread runner([&] { (void)communicator.run(barrier()); });
        if (!group.wait_for_arrival()) return "the barrier did not begin";
        std::atomic<int> waiting = 0;
        auto memory = std::async(std::launch::async, [&] {
            waiting = ::gettid();
            return communicator.allocate(4096).has_value();
        });
        while (waiting == 0) std::this_thread::yield();
        wait_until_asleep(waiting);
        group.let_go();
        const bool woken = memory.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
        if (!woken) (void)communicator.start(barrier()).wait();  // that wakes it, so that the test can end
        runner.join();
        return woken && memory.get() ? "" : "allocate() was not woken";
    });
    CHECK(wrong == "");
}

TEST_CASE("what is started while allocate() goes on begins when that is over") {
    ThreadGroup group(1);
    group.hold();
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        std::thread taker([&] { (void)communicator.allocate(4096); });
        if (!group.wait_for_arrival()) return "allocate() did not begin";
        Work work = communicator.start(barrier());
        wait_until_asleep(wait_for_thread("muster-lane"));
        group.let_go();
        auto over = std::async(std::launch::async, [&] { return work.wait(); });
        const bool woken = over.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
        if (!woken) (void)communicator.start(barrier());  // that wakes it, so that the test can end
        taker.join();
        return over.get() && woken ? "" : "it was not woken";
    });
    CHECK(wrong == "");
}

TEST_CASE("a time-out may be as long as can be said") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        for (int i = 0; i < 20; ++i) {
            if (!communicator.run(barrier(), Duration::max())) return "run() timed out";
            if (!communicator.start(barrier(), Duration::max()).wait()) return "start() timed out";
        }
        return "";
    });
    CHECK(wrong == "");
}

TEST_CASE("work says how long it ran, and nothing before it is over") {
    ThreadGroup group(1);
    group.hold();
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        Work work = communicator.start(barrier());
        if (work.took() != Duration{}) return "it took time before it was over";
        group.let_go();
        if (!work.wait()) return "the barrier failed";
        return work.took() > Duration{} ? "" : "it took no time";
    });
    CHECK(wrong == "");
    CHECK(Work().took() == Duration{});
}
