// agent/STATES.md, the cells of ended workers: which of them has failed by itself.
#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

TEST_CASE("a worker's failure is reported at once, before the others are signalled") {
    for (auto state : {Story::starting, Story::running})
        CHECK(state().ended(0, Exited{7}) == "ReportFailed(rank 2: exit code 7); " + term);
    Story never = Story::starting();
    CHECK(never.ended(1, NotStarted{2, "execvpe"}).starts_with("ReportFailed(rank 3: not started"));
}

TEST_CASE("a node that the system refuses a process is lost to the others, and its agent ends, uncharged") {
    for (const int refused : {EAGAIN, ENOMEM, EMFILE, ENOSPC, EDQUOT}) {
        Story story = Story::starting();
        story.started(0);
        CHECK(story.ended(1, NotStarted{refused, "fork beyond pids.max = 1"}) == "ReportFailed(node); " + term);
        const auto& failure = std::get<ReportFailed>(story.last().actions.at(0)).failures.at(0);
        CHECK(failure.kind == FailureKind::node_lost);  // which charges nothing
        CHECK(failure.message.find("local rank 1 not started: fork beyond pids.max = 1") != std::string::npos);
        story.round_ended(0);
        CHECK(story.ended(0, Signaled{SIGTERM, false}) == "KillTree");
        CHECK(story.tree_empty().ends_with("CloseStore; Finish(AgentFailed)"));
    }
    // Each further worker meets the same limit, which is told once.
    Story both = Story::starting();
    both.ended(0, NotStarted{EAGAIN, "fork"});
    CHECK(both.ended(1, NotStarted{EAGAIN, "fork"}) == "KillTree");
    Story stopped = Story::starting();
    stopped.stop(SIGTERM);
    stopped.ended(0, NotStarted{EAGAIN, "fork"});
    stopped.ended(1, NotStarted{EAGAIN, "fork"});
    CHECK(stopped.tree_empty().ends_with("Finish(Cancelled SIGTERM)"));
}

TEST_CASE("what ends after the signal was stopped, whatever its exit code") {
    Story story = Story::draining();
    CHECK(story.ended(0, Exited{1}) == "");
    CHECK(story.ended(1, Exited{0}) == "KillTree");
    CHECK(story.tree_empty() == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");
}

TEST_CASE("an exit after the signal whose cause is known is a failure of its own") {
    Story story = Story::draining();
    WorkerNotes notes;
    notes.cause = {CauseKind::disk_full, "full", ""};
    const WorkerEnded ended{.local_rank = 0, .pid = 42, .end = Exited{1}, .at = story.now, .stderr_tail = ""};
    story.step(HostEvent{ended, notes});
    CHECK(std::get<ReportFailed>(story.last().actions.at(0)).failures.at(0).cause.kind == CauseKind::disk_full);
}

TEST_CASE("a worker whose GPU failed has failed, also where our signal was what ended it") {
    Story story = Story::draining();
    WorkerNotes notes;
    notes.cause = {CauseKind::gpu_fault, "Xid 79", ""};
    const WorkerEnded ended{
        .local_rank = 0, .pid = 42, .end = Signaled{SIGTERM, false}, .at = story.now, .stderr_tail = ""};
    story.step(HostEvent{ended, notes});
    CHECK(std::get<ReportFailed>(story.last().actions.at(0)).failures.at(0).cause.kind == CauseKind::gpu_fault);
}

TEST_CASE("a rank that differed and that the signal met on its way out has failed, and another that it met has not") {
    for (const auto cause : {CauseKind::collective_mismatch, CauseKind::disk_full}) {
        Story story = Story::draining();
        WorkerNotes notes;
        notes.cause = {cause, "why", ""};
        const WorkerEnded ended{
            .local_rank = 0, .pid = 42, .end = Signaled{SIGTERM, false}, .at = story.now, .stderr_tail = ""};
        story.step(HostEvent{ended, notes});
        CHECK(story.last().actions.empty() == (cause != CauseKind::collective_mismatch));
    }
}

TEST_CASE("a death by a signal that muster has not sent is a failure of its own, also after the signal") {
    Story story = Story::draining();
    CHECK(story.ended(0, Signaled{SIGSEGV, false}) == "ReportFailed(rank 2: signal 11 (SIGSEGV))");
    CHECK(story.ended(1, Signaled{SIGKILL, false}) == "ReportFailed(rank 3: signal 9 (SIGKILL)); KillTree");
}

TEST_CASE("a worker that never started failed by itself, even after the signal") {
    Story story = Story::starting();
    story.round_ended(0);
    CHECK(story.ended(0, NotStarted{2, "execvpe"}).starts_with("ReportFailed(rank 2: not started"));
}

TEST_CASE("what had ended before the signal failed by itself") {
    Story story = Story::draining();
    CHECK(story.ended_at(0, Exited{3}, story.now - 2s) == "ReportFailed(rank 2: exit code 3)");
    CHECK(story.ended(1, Signaled{SIGTERM, false}) == "KillTree");
    CHECK(story.tree_empty() == "ReportRound(0, failed [rank 2: exit code 3], stopped 1); CloseStore; OpenStore");
}

TEST_CASE("a second failure is reported at once, and not again with the round") {
    Story story = Story::running();
    const Instant before = story.now - 1ms;
    story.ended_at(0, Exited{1}, before);
    CHECK(story.ended_at(1, Signaled{SIGSEGV, false}, before) == "ReportFailed(rank 3: signal 11 (SIGSEGV)); KillTree");
    story.tree_empty();
    CHECK(story.round_ended(0) == "ReportRound(0, failed [], stopped 0); CloseStore; OpenStore");
}

TEST_CASE("a scheduler's signal to all processes is a stop, whichever of them it reaches first") {
    for (const WorkerEnd& end : {WorkerEnd{Signaled{SIGTERM, false}}, WorkerEnd{Exited{128 + SIGTERM}}}) {
        Story story = Story::running();
        CHECK(story.ended(0, end) == "");
        CHECK(story.ended(1, Exited{1}) == "");  // it missed rank 0
        CHECK(story.stop(SIGTERM) == "KillTree");
        CHECK(story.tree_empty() == "SendLeave(stopped by SIGTERM); CloseStore; Finish(Cancelled SIGTERM)");
    }
    Story one = Story::running();
    one.ended(0, Signaled{SIGTERM, false});
    CHECK(one.stop(SIGTERM) == "NotifyWorkers; Signal(SIGTERM)");  // the other rank has yet to hear of it
}

TEST_CASE(
    "a worker that somebody ended by a stop signal has failed, as soon as it is clear that none comes to the agent") {
    const std::string failed = "ReportFailed(rank 2: signal 15 (SIGTERM)); ";
    Story story = Story::running();
    CHECK(story.ended(0, Signaled{SIGTERM, false}) == "");
    CHECK(story.time_left() == 1s);
    CHECK(story.elapse(999ms) == "");
    CHECK(story.elapse(1ms) == failed + term);
    CHECK(story.ended(1, Signaled{SIGTERM, false}) == "KillTree");

    Story other = Story::running();
    other.ended(0, Signaled{SIGTERM, false});
    other.now += 1ms;
    CHECK(other.stop(SIGINT) == failed + "NotifyWorkers; Signal(SIGINT)");

    Story unhandled = Story::running();
    CHECK(unhandled.ended(0, Signaled{SIGQUIT, false}).starts_with("ReportFailed(rank 2: signal 3"));
}

TEST_CASE("what else ends the round does not forget a worker whose end waits") {
    const std::string failed = "ReportFailed(rank 2: signal 15 (SIGTERM)); ";
    const auto held = [] {
        Story story = Story::running();
        story.ended_but_group(0, Signaled{SIGTERM, false});
        CHECK(story.group_empty(0) == "");
        story.now += 1ms;
        return story;
    };
    CHECK(held().round_ended(0) == failed + term);
    CHECK(held().unfed(1) == failed + term + "; KillTree");
    CHECK(held().orphaned(1) == failed + term + "; KillTree");
    CHECK(held().guardian_replaced() == failed + term);
    CHECK(held().fenced() == failed + "KillTree");
    CHECK(held().lost() == term);
    CHECK(held().notice("x") == "PreemptWorkers(x)");
}
