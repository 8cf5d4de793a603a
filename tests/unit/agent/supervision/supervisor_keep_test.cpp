// --on-worker-failure=keep: the worker that failed is started again, the others run on; and what ends the round
// nevertheless.
#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

SupervisorConfig keeping(std::uint32_t keep_max = 2) {
    auto config = Story::config();
    config.keep_max = keep_max;
    return config;
}

/// In round 0, both workers running.
Story running(SupervisorConfig config) {
    Story story(std::move(config));
    story.begin();
    story.store_opened();
    story.assigned(0);
    story.started(0);
    story.started(1);
    REQUIRE(story.phase() == Phase::running);
    return story;
}

}  // namespace

TEST_CASE("a worker that fails is started again, and nobody else hears of it") {
    auto story = running(keeping());
    CHECK(story.ended(1, Signaled{SIGKILL, false}) == "StartAgain(1, 1)");
    REQUIRE(story.last().notices.size() == 1);
    CHECK(story.last().notices[0] ==
          "rank 3 on a failed: signal 9 (SIGKILL); starting it again (1 of 2 times in this round), the other workers "
          "keep running");
    CHECK(story.phase() == Phase::starting);
    CHECK(story.started(1).empty());
    CHECK(story.phase() == Phase::running);
    CHECK(story.ended(0, Exited{0}).empty());
    CHECK(story.ended(1, Exited{0}) == "ReportSucceeded");
}

TEST_CASE("after the limit the worker's next failure ends the round") {
    auto story = running(keeping(1));
    CHECK(story.ended(1, Exited{1}) == "StartAgain(1, 1)");
    story.started(1);
    CHECK(story.ended(1, Exited{1}) == "ReportFailed(rank 3: exit code 1); " + term);
    CHECK(story.phase() == Phase::draining);
}

TEST_CASE("each worker has its own limit, and a new round has new ones") {
    auto story = running(keeping(1));
    CHECK(story.ended(1, Exited{1}) == "StartAgain(1, 1)");
    CHECK(story.ended(0, Exited{1}) == "StartAgain(0, 1)");
    story.started(0);
    story.started(1);
    story.ended(1, Exited{1});
    story.ended(0, Signaled{SIGTERM, false});
    story.round_ended(0);
    story.tree_empty();
    story.store_opened();
    story.assigned(1, 1);
    story.started(0);
    story.started(1);
    CHECK(story.ended(1, Exited{1}) == "StartAgain(1, 1)");
}

TEST_CASE("what the worker left in its process group is killed before it is started again") {
    auto story = running(keeping());
    CHECK(story.ended_but_group(1, Exited{1}) == "SignalGroup(1, SIGKILL)");
    CHECK(story.time_left() == 5s);
    CHECK(story.group_empty(1) == "StartAgain(1, 1)");
    CHECK(story.time_left() == Duration::max());
}

TEST_CASE("a process group that outlives SIGKILL ends the round with the worker's failure") {
    auto story = running(keeping());
    story.ended_but_group(1, Exited{1});
    story.now += 5s;
    CHECK(story.step(Elapsed{}) == "ReportFailed(rank 3: exit code 1); " + term);
}

TEST_CASE("a round that ends while a worker waits for its start does not start it") {
    auto story = running(keeping());
    story.ended_but_group(1, Exited{1});
    CHECK(story.round_ended(0) == term);
    CHECK(story.group_empty(1).empty());
    CHECK(story.ended(0, Signaled{SIGTERM, false}) == "KillTree");
}

TEST_CASE("what ends the round in any case: saved and left, not started, the store's own worker") {
    SECTION("it saved and left") {
        auto story = running(keeping());
        CHECK(story.ended(1, Exited{76}).starts_with("ReportFailed(rank 3: "));
    }
    SECTION("it could not be started") {
        auto story = running(keeping());
        CHECK(story.ended(1, Exited{1}) == "StartAgain(1, 1)");
        CHECK(story.ended(1, NotStarted{2, "execve"}).starts_with("ReportFailed(rank 3"));
    }
    SECTION("rank 0 had the store") {
        auto config = keeping();
        config.rank_0_has_store = true;
        Story story(config);
        story.begin();
        story.store_opened();
        native::Assigned assigned;
        assigned.round = 0;
        assigned.world_size = 2;
        story.step(DaemonMessage{assigned});
        story.started(0);
        story.started(1);
        CHECK(story.ended(1, Exited{1}) == "StartAgain(1, 1)");
        CHECK(story.ended(0, Exited{1}).starts_with("ReportFailed(rank 0"));
    }
}

TEST_CASE("a failure that another start would repeat ends the round, unless it shall be tried again") {
    const auto missing = [](Story& story) {
        WorkerEnded ended{.local_rank = 1, .pid = 100, .end = Exited{1}, .at = story.now};
        ended.stderr_tail = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'nosuch'\n";
        return story.step(HostEvent{std::move(ended), {}});
    };
    auto story = running(keeping());
    CHECK(missing(story).starts_with("ReportFailed(rank 3"));
    auto config = keeping();
    config.join.terms.restart_early_failures = true;
    auto again = running(std::move(config));
    CHECK(missing(again) == "StartAgain(1, 1)");
    // Early is counted from a worker's own start.
    auto late = running(keeping());
    late.now += 1h;
    CHECK(late.ended(1, Signaled{SIGSEGV, false}) == "StartAgain(1, 1)");
    CHECK(missing(late).starts_with("ReportFailed(rank 3"));
}

TEST_CASE("a worker that fails when the others are through, or after a notice, ends the round") {
    auto through = running(keeping());
    through.ended(0, Exited{0});
    CHECK(through.ended(1, Signaled{SIGSEGV, false}).starts_with("ReportFailed(rank 3"));
    auto noticed = running(keeping());
    noticed.step(DaemonMessage{native::NoticeGiven{"maintenance"}});
    CHECK(noticed.ended(1, Exited{1}).starts_with("ReportFailed(rank 3"));
}

TEST_CASE("a notice while a worker waits for its start reaches the others, and nobody is started") {
    auto story = running(keeping());
    story.ended_but_group(1, Exited{1});
    CHECK(story.step(DaemonMessage{native::NoticeGiven{"maintenance"}}) ==
          "PreemptWorkers(maintenance); ReportFailed(rank 3: exit code 1); NotifyWorkers; Signal(SIGTERM)");
}

TEST_CASE("the report of a worker's last failure says how often it was started again") {
    auto story = running(keeping(1));
    story.ended(1, Exited{1});
    story.ended(1, Exited{1});
    const auto& failures = std::get<ReportFailed>(story.last().actions.front()).failures;
    REQUIRE(failures.size() == 1);
    CHECK(failures[0].message == "it had been started again 1 time in this round (--keep-limit 1)");
}

TEST_CASE("fencing, a second stop signal and a lost guardian end a round whose worker waits for its start") {
    auto fenced = running(keeping());
    fenced.ended_but_group(1, Exited{1});
    CHECK(fenced.step(ClientFenced{"silent"}) == "KillTree");
    auto stopped = running(keeping());
    stopped.ended_but_group(1, Exited{1});
    CHECK(stopped.stop(SIGTERM) == "NotifyWorkers; Signal(SIGTERM)");
    CHECK(stopped.stop(SIGTERM) == "KillTree");
    auto orphaned = running(keeping());
    orphaned.ended_but_group(1, Exited{1});
    orphaned.orphaned(0);
    CHECK(orphaned.step(HostEvent{GuardianLost{"killed", orphaned.now, true}, {}})
              .starts_with("ReportFailed(node); KillTree"));
}

TEST_CASE("an end by a scheduler's signal is held before the worker is started again") {
    auto story = running(keeping());
    CHECK(story.ended(1, Signaled{SIGTERM, false}).empty());
    SECTION("no signal comes to the agent") {
        story.now += 1s;
        CHECK(story.step(Elapsed{}) == "StartAgain(1, 1)");
    }
    SECTION("it comes: the job is being stopped") {
        CHECK(story.stop(SIGTERM) == "NotifyWorkers; Signal(SIGTERM)");
    }
}
