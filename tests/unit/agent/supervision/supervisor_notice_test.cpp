// agent/STATES.md, the cells of notices: a preemption that is to reach the workers in time, with the daemon and
// without.
#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

TEST_CASE("a notice goes on to the workers that still run, and stops nobody") {
    const DaemonMessage notice{native::NoticeGiven{"SIGUSR1 to gpu07"}};
    CHECK(Story::joining().step(notice) == "");
    Story story = Story::running();
    CHECK(story.step(notice) == "PreemptWorkers(SIGUSR1 to gpu07)");
    CHECK(story.phase() == Phase::running);
    CHECK(Story::draining().step(notice) == "");
    CHECK(Story::drained().step(notice) == "");
}

TEST_CASE("the preemption signal is told to the daemon, which tells every node, this one too") {
    for (auto state : {Story::joining, Story::draining, Story::drained})
        CHECK(state().preempted() == "SendCommand(notify: SIGUSR1 to a)");
    Story story = Story::running();
    CHECK(story.preempted() == "SendCommand(notify: SIGUSR1 to a)");
    CHECK(story.elapse(500ms) == "");
    CHECK(story.notice("SIGUSR1 to a") == "PreemptWorkers(SIGUSR1 to a)");
    CHECK(story.time_left() == Duration::max());
    CHECK(story.elapse(10s) == "");
}

TEST_CASE(
    "a node that has not joined tells nobody of its preemption but its own first workers, when they have started") {
    Story story;
    CHECK(story.preempted() == "");
    CHECK(story.phase() == Phase::idle);
    CHECK(story.begin() == "OpenStore");
    story.store_opened();
    CHECK(story.assigned(0) == "StartWorkers(0)");
    CHECK(story.started(0) == "");
    CHECK(story.started(1) == "PreemptWorkers(SIGUSR1 to a)");
    CHECK(story.elapse(10s) == "");
    story.round_ended(0);
    for (const std::uint32_t rank : {0U, 1U}) story.ended(rank, Signaled{SIGTERM});
    story.tree_empty();
    story.store_opened();
    CHECK(story.assigned(1).find("StartWorkers(1)") != std::string::npos);
    for (const std::uint32_t rank : {0U, 1U}) CHECK(story.started(rank) == "");
}

TEST_CASE("a notice waits until every worker has started, because only then are their signal handlers known") {
    Story story = Story::starting();
    CHECK(story.preempted() == "SendCommand(notify: SIGUSR1 to a)");
    CHECK(story.notice("SIGUSR1 to a") == "");
    CHECK(story.started(0) == "");
    CHECK(story.started(1) == "PreemptWorkers(SIGUSR1 to a)");

    Story alone = Story::starting();
    alone.preempted();
    CHECK(alone.elapse(1s) == "");
    alone.started(1);
    CHECK(alone.started(0) == "PreemptWorkers(SIGUSR1 to a)");
    CHECK(alone.notice("SIGUSR1 to a") == "");
}

TEST_CASE(
    "where the daemon does not answer a preempted node tells its own workers, and the daemon's echo adds nothing") {
    Story story = Story::running();
    story.preempted();
    CHECK(story.time_left() == 1s);
    CHECK(story.elapse(999ms) == "");
    CHECK(story.elapse(1ms) == "PreemptWorkers(SIGUSR1 to a)");
    CHECK(story.time_left() == Duration::max());
    CHECK(story.notice("SIGUSR1 to a") == "");
    // A later one is a second notice, which hurries the workers.
    CHECK(story.notice("SIGUSR1 to b") == "PreemptWorkers(SIGUSR1 to b)");
}

TEST_CASE("a second preemption signal while the daemon is away is told too, and a stop in between ends the wait") {
    Story twice = Story::running();
    twice.preempted();
    twice.elapse(1s);
    twice.elapse(3s);
    CHECK(twice.preempted() == "SendCommand(notify: SIGUSR1 to a)");
    CHECK(twice.elapse(1s) == "PreemptWorkers(SIGUSR1 to a)");
    // A scheduler signals every node, and the first one's notice was quicker than this node's own signal.
    Story later = Story::running();
    later.notice("SIGUSR1 to b");
    later.elapse(100ms);
    CHECK(later.preempted() == "SendCommand(notify: SIGUSR1 to a)");
    CHECK(later.elapse(10s) == "");
    Story stopped = Story::running();
    stopped.preempted();
    stopped.round_ended(0);
    CHECK(stopped.elapse(1s) == "");
}
