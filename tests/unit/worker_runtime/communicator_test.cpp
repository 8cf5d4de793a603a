// How a communicator hands operations to its threads, whatever carries them.
#include "muster/communicator.h"

#include <thread>

#include "tests/support/catch.h"
#include "tests/support/thread_group.h"

using namespace muster;
using namespace muster::test;

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
