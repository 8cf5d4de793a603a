// An agent that was stopped itself (SIGSTOP, Ctrl-Z, a paused machine), and has heard nothing meanwhile.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

namespace {

auto count(const Lines& lines, std::string_view start) {
    return std::ranges::count_if(lines, [&](const auto& line) { return line.starts_with(start); });
}

}  // namespace

TEST_CASE("the only node of a job that serves itself kills nothing, and waits a whole lost time-out from its wake") {
    Dialogue talk;
    talk.config.is_alone = true;
    talk.core.emplace(talk.config);
    talk.settle_in(1);
    talk.now += 100s;
    // A second connection, as beside every silent one.
    CHECK(talk.hears(TimePassed{}) ==
          Lines{"progress: this launcher stood still for 99.7 s: it was stopped (Ctrl-Z, SIGSTOP, a "
                "paused machine), got no CPU, or waited for a disk",
                "connect", "send Ping"});
    SECTION("the daemon answers") {
        talk.pong();
        CHECK(talk.pass(20s, true) == Lines(80, "send Ping"));
    }
    SECTION("it does not") {
        CHECK_FALSE(any_starts_with(talk.pass(59'999ms), "lost"));
        CHECK(any_starts_with(talk.pass(1ms), "lost"));
    }
}

TEST_CASE("a node without which a job may go on kills its workers when it wakes up, and has not lost the daemon") {
    for (const std::uint32_t world : {1U, 3U}) {
        Dialogue talk;
        talk.settle_in(world);
        talk.now += 100s;
        const auto woken = talk.hears(TimePassed{});
        CHECK(count(woken, "fenced") == 1);
        CHECK(count(woken, "lost") == 0);
        const auto later = talk.pass(59'999ms);
        CHECK(count(later, "fenced") == 0);
        CHECK(count(later, "lost") == 0);
        CHECK(count(talk.pass(1ms), "lost") == 1);
    }
}

TEST_CASE("however often it is stopped, its workers end at the lost time-out") {
    Dialogue talk;
    talk.settle_in(1);
    const auto heard = talk.now;
    while (talk.now < heard + 55s) {
        talk.now += 3s;
        CHECK(count(talk.hears(TimePassed{}), "fenced") == 0);
    }
    talk.pass(heard + 60s - 1ms - talk.now);
    CHECK(count(talk.pass(1ms), "fenced") == 1);
}

TEST_CASE("a node that stops while its daemon is silent does not say that it answers") {
    Dialogue talk;
    talk.settle_in(1);
    CHECK(count(talk.pass(6s), "progress: gpu00:29400 has not answered") == 1);
    talk.now += 4s;
    CHECK(count(talk.hears(TimePassed{}), "progress: gpu00") == 0);
    CHECK(count(talk.pong(), "progress: gpu00:29400 answers again") == 1);
}

TEST_CASE("a node that was stopped while it waits gives the daemon its time-outs again from its wake") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.pong();
    SECTION("a spare, whose wait has no limit") {
        talk.daemon(native::Parked{});
    }
    SECTION("another one") {}
    talk.now += 700s;  // beyond the join time-out
    CHECK(count(talk.hears(TimePassed{}), "lost") == 0);
    CHECK(count(talk.pass(59'999ms), "lost") == 0);
    CHECK(count(talk.pass(1ms), "lost") == 1);
}

TEST_CASE("a wait that begins with the step after the stop lasts no longer for it") {
    Dialogue talk;
    talk.config.join_timeout = 30s;
    talk.core.emplace(talk.config);
    talk.settle_in(1);
    talk.daemon(native::RoundEnded{0, native::RoundEndReason::worker_failed, false, "x"});
    talk.now += 100s;
    talk.join();
    CHECK_FALSE(any_starts_with(talk.pass(30s - 1ms), "lost"));
    CHECK(any_starts_with(talk.pass(1ms), "lost"));
}

}  // namespace muster::test
