// agent/STATES.md, cell by cell.
#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

TEST_CASE("the states of the table are reached") {
    CHECK(Story::idle().phase() == Phase::idle);
    CHECK(Story::joining().phase() == Phase::joining);
    CHECK(Story::starting().phase() == Phase::starting);
    CHECK(Story::running().phase() == Phase::running);
    CHECK(Story::draining().phase() == Phase::draining);
    CHECK(Story::drained().phase() == Phase::drained);
}

TEST_CASE("begin opens a store, and the open store is what the join offers") {
    Story story;
    CHECK(story.begin() == "OpenStore");
    CHECK(story.phase() == Phase::joining);
    CHECK(story.store_opened() == "SendJoin(after -1, store 4000)");
}

TEST_CASE("a store that cannot be opened ends an agent that nobody knows yet without a word") {
    Story story;
    story.begin();
    CHECK(story.step(StoreOpened{Error{Errc::already_exists, "bind port 4000: in use"}}) == "Finish(SetUpFailed)");
    Story broken;
    broken.begin();
    CHECK(broken.step(StoreOpened{Error{Errc::io, "socket: too many open files"}}) == "Finish(AgentFailed)");
}

TEST_CASE("an assignment starts the workers of a joining agent and of no other") {
    CHECK(Story::idle().assigned(0) == "");
    CHECK(Story::joining().assigned(0) == "StartWorkers(0)");
    for (auto state : {Story::starting, Story::running, Story::draining, Story::drained})
        CHECK(state().assigned(1) == "");
}

TEST_CASE("parked is only noted") {
    Story story = Story::joining();
    CHECK(story.step(DaemonMessage{native::Parked{}}) == "");
    CHECK(story.last().why.size() == 1);
    CHECK(story.phase() == Phase::joining);
}

TEST_CASE("the end of the round stops its workers, and is noted by those who stop already") {
    CHECK(Story::idle().round_ended(0) == "");
    CHECK(Story::joining().round_ended(0) == "");
    CHECK(Story::starting().round_ended(0) == term);
    CHECK(Story::running().round_ended(0) == term);
    CHECK(Story::running().round_ended(3) == "");
    CHECK(Story::draining().round_ended(0) == "");
    CHECK(Story::drained().round_ended(0) == "ReportRound(0, failed [], stopped 1); CloseStore; OpenStore");
    CHECK(Story::drained().round_ended(0, true) == "ReportRound(0, failed [], stopped 1)");
}

TEST_CASE("the end of the job ends the agent, after its workers") {
    const std::string finish = "AcknowledgeEnd; CloseStore; Finish(JobFailed no restart left)";
    CHECK(Story::joining().job_failed() == finish);
    CHECK(Story::starting().job_failed() == term);
    CHECK(Story::running().job_failed() == term);
    CHECK(Story::draining().job_failed() == "");
    CHECK(Story::drained().job_failed() == finish);
    CHECK(Story::joining().job_succeeded() == "AcknowledgeEnd; CloseStore; Finish(JobSucceeded)");
}

TEST_CASE("a node that has not run its program knows so at the job's end") {
    Story late = Story::joining();
    late.job_succeeded();
    CHECK(std::get<JobSucceeded>(late.ending()).part == NodePart::late);
    Story spare = Story::joining();
    spare.step(DaemonMessage{native::Parked{}});
    spare.job_failed();
    CHECK(std::get<JobFailed>(spare.ending()).part == NodePart::spare);
    Story taken = Story::joining();
    taken.step(DaemonMessage{native::Parked{}});
    taken.assigned(0);
    taken.job_succeeded();
    taken.ended(0, Exited{0});
    taken.ended(1, Exited{0});
    taken.tree_empty();
    CHECK(std::get<JobSucceeded>(taken.ending()).part == NodePart::ran);
}

TEST_CASE("a drained node stops its workers and leaves") {
    const std::string leave = "SendLeave(maintenance); CloseStore; Finish(Drained maintenance)";
    CHECK(Story::joining().drain() == leave);
    CHECK(Story::starting().drain() == "NotifyWorkers; Signal(SIGTERM)");  // no "round over": they may save
    CHECK(Story::running().drain() == "NotifyWorkers; Signal(SIGTERM)");
    CHECK(Story::draining().drain() == "");
    CHECK(Story::drained().drain() == leave);
}

TEST_CASE("a refusal ends the agent, and nothing is said to those who refused") {
    const std::string finish = "CloseStore; Finish(JoinRefused max 2, not 3)";
    CHECK(Story::joining().refused() == finish);
    CHECK(Story::running().refused() == term);
    CHECK(Story::draining().refused() == "");
    CHECK(Story::drained().refused() == finish);
}

TEST_CASE("the last success is reported and the agent waits, and leftovers go when the job ends") {
    Story story = Story::running();
    CHECK(story.ended(0, Exited{0}) == "");
    CHECK(story.ended(1, Exited{0}) == "ReportSucceeded");
    CHECK(story.phase() == Phase::running);
    CHECK(story.job_succeeded() == "KillTree");
    CHECK(story.tree_empty() == "AcknowledgeEnd; CloseStore; Finish(JobSucceeded)");
}

TEST_CASE("the exit barrier ends at once when a peer fails, and the node takes part in the next round") {
    Story story = Story::running();
    story.ended(0, Exited{0});
    story.ended(1, Exited{0});
    CHECK(story.round_ended(0) == "KillTree");
    CHECK(story.tree_empty() == "ReportRound(0, failed [], stopped 0); CloseStore; OpenStore");
    CHECK(story.store_opened() == "SendJoin(after 0, store 4000)");
    CHECK(story.assigned(1) == "StartWorkers(1)");
}

TEST_CASE("workers that were killed because the agent was stopped have not failed: the node joins again") {
    Story story = Story::running();
    CHECK(story.unfed(0) == "KillTree");
    CHECK(story.unfed(1) == "");
    CHECK(story.tree_empty() == "CloseStore; OpenStore");
    CHECK(Story::draining().unfed(0) == "KillTree");
}

TEST_CASE("an agent that had been stopped tells one line, whichever news it reads first") {
    Story first = Story::running();
    first.unfed(0);
    CHECK(first.last().notices.size() == 1);
    first.unfed(1);
    CHECK(first.last().notices.empty());
    first.round_ended(0);
    CHECK(first.last().notices.empty());

    Story other = Story::running();
    other.round_ended(0);
    CHECK(other.last().notices.size() == 1);
    other.unfed(0);
    CHECK(other.last().notices.empty());
}

TEST_CASE("an empty tree means something only after it was killed") {
    for (auto state : {Story::joining, Story::starting, Story::running, Story::draining, Story::drained}) {
        Story story = state();
        const Phase before = story.phase();
        CHECK(story.tree_empty() == "");
        CHECK(story.phase() == before);
    }
}

TEST_CASE("processes that SIGKILL does not remove end the agent and not the launcher's patience") {
    for (auto state : {Story::joining, Story::drained}) CHECK(state().tree_stuck() == "");
    Story story = Story::draining();
    CHECK(story.elapse(29s) == "KillTree");
    CHECK(story.tree_stuck().ends_with("CloseStore; Finish(AgentFailed)"));

    Story silent = Story::draining();
    silent.elapse(29s);
    CHECK(silent.time_left() == 5s);
    CHECK(silent.elapse(5s) == "KillGuardian");
    CHECK(silent.time_left() == 5s);
    CHECK(silent.elapse(5s).ends_with("CloseStore; Finish(AgentFailed)"));
}

TEST_CASE("a guardian that was stopped is done without, and the next round follows") {
    Story story = Story::draining();
    story.elapse(29s);
    CHECK(story.elapse(5s) == "KillGuardian");
    story.orphaned(0);
    story.orphaned(1);
    CHECK(story.guardian_replaced() == "");
    CHECK(story.tree_empty() == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");
}

TEST_CASE("what a stop leaves behind is told, though the ending is the stop's") {
    Story story = Story::running();
    story.stop(SIGTERM);
    story.stop(SIGTERM);
    CHECK(story.tree_stuck().find("Finish(Cancelled SIGTERM)") != std::string::npos);
    CHECK(story.last().notices.at(0).find("did not end after SIGKILL") != std::string::npos);
}

TEST_CASE("a set-up that is refused ends an agent that nobody knows, and a signal beside it changes nothing") {
    Story story;
    CHECK(story.step(SetUpRefused{"--log-dir: no"}) == "Finish(SetUpFailed)");
    CHECK(story.stop(SIGTERM) == "");
    Story stopped;
    stopped.stop(SIGTERM);
    CHECK(stopped.step(SetUpRefused{"--log-dir: no"}) == "");
}

TEST_CASE("what an ended leader left in its group gets the stop signal once, and the rest of the grace") {
    Story story = Story::draining();  // 1 s into it
    CHECK(story.ended_but_group(0, Signaled{SIGTERM}) == "SignalGroup(0, SIGTERM)");
    CHECK(story.ended(1, Exited{0}) == "");
    CHECK(story.phase() == Phase::draining);
    CHECK(story.time_left() == 29s);
    CHECK(story.elapse(28s) == "");
    CHECK(story.group_empty(0) == "KillTree");
    CHECK(story.tree_empty() == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");

    Story stubborn = Story::draining();
    stubborn.ended_but_group(0, Signaled{SIGTERM});
    stubborn.ended_but_group(1, Signaled{SIGTERM});
    CHECK(stubborn.elapse(29s) == "KillTree");
    CHECK(stubborn.group_empty(0) == "");
}

TEST_CASE("a failed worker's group is stopped with its round, and one signal more kills what is left") {
    Story story = Story::running();
    CHECK(story.ended_but_group(0, Exited{7}) ==
          "ReportFailed(rank 2: exit code 7); SendRoundOver; Signal(SIGTERM); SignalGroup(0, SIGTERM)");
    story.stop(SIGINT);
    CHECK(story.stop(SIGINT) == "KillTree");
}

TEST_CASE("a worker that ended long before the stop is asked about its group too") {
    Story story = Story::running();
    CHECK(story.ended_but_group(0, Exited{0}) == "");
    CHECK(story.ended(1, Exited{0}) == "ReportSucceeded");
    CHECK(story.job_succeeded() == "SignalGroup(0, SIGTERM)");
    CHECK(story.group_empty(0) == "KillTree");

    Story fenced = Story::running();
    fenced.ended_but_group(0, Exited{0});
    CHECK(fenced.fenced() == "KillTree");  // no grace
}

TEST_CASE("a guardian that was replaced costs its workers and one failure of the node, and the next round runs") {
    Story story = Story::running();
    CHECK(story.orphaned(0) == "");
    CHECK(story.orphaned(1) == "");
    CHECK(story.guardian_replaced() == "ReportFailed(node); KillTree");
    const auto& reported = std::get<ReportFailed>(story.last().actions.at(0)).failures.at(0);
    CHECK(reported.kind == FailureKind::killed);  // charged: a guardian killed in each round must not go on for ever
    CHECK(reported.end == WorkerEnd(Signaled{SIGKILL}));
    CHECK(story.tree_empty() == "");
    CHECK(story.round_ended(0) == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");
    CHECK(story.last().notices.at(0).ends_with(
        "; the next round follows unless the job ends"));  // nobody is left to be stopped
    CHECK(story.store_opened() == "SendJoin(after 0, store 4000)");
    CHECK(story.assigned(1) == "StartWorkers(1)");
}

TEST_CASE("nobody is promised another round when the budget is spent and the verdict is open") {
    Story story = Story::drained();
    story.round_ended(0);
    CHECK(story.last().notices.at(0).ends_with("; the next round follows unless the job ends"));
    story.store_opened();
    story.assigned(1, 1);
    story.round_ended(1);
    CHECK(story.last().notices.at(0).ends_with("; stopping this node's workers; determining the first cause"));
}

TEST_CASE("a guardian that was replaced is no failure where no worker died with it") {
    CHECK(Story::joining().guardian_replaced() == "");
    CHECK(Story::drained().guardian_replaced() == "");
    Story barrier = Story::running();
    barrier.ended(0, Exited{0});
    barrier.ended_but_group(1, Exited{0});
    CHECK(barrier.guardian_replaced() == "");
    CHECK(barrier.job_succeeded() == "KillTree");

    Story stopping = Story::draining();  // they were to end anyway
    stopping.orphaned(0);
    stopping.orphaned(1);
    CHECK(stopping.guardian_replaced() == "");
    CHECK(stopping.tree_empty() == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");
}

TEST_CASE("a lost guardian that nobody replaces ends the agent, and the daemon hears why") {
    CHECK(Story::joining().guardian_lost().starts_with("SendLeave(the guardian process"));
    CHECK(Story::running().guardian_lost().starts_with("ReportFailed(node); SendLeave(the guardian process"));
    CHECK(Story::running().guardian_lost().ends_with("CloseStore; Finish(AgentFailed)"));
    CHECK(Story::draining().guardian_lost().starts_with("ReportFailed(node); SendLeave"));
    CHECK(Story::drained().guardian_lost().starts_with("SendLeave"));
}

TEST_CASE("fencing kills at once, without a signal and without grace, and the node joins again") {
    CHECK(Story::joining().fenced() == "");
    CHECK(Story::starting().fenced() == "KillTree");
    CHECK(Story::draining().fenced() == "KillTree");
    CHECK(Story::drained().fenced() == "");
    Story story = Story::running();
    CHECK(story.fenced() == "KillTree");
    story.ended(0, Signaled{SIGKILL, false});
    story.ended(1, Signaled{SIGKILL, false});
    CHECK(story.tree_empty() == "CloseStore; OpenStore");
    CHECK(story.store_opened() == "SendJoin(after 0, store 4000)");
}

TEST_CASE("without a rendezvous the agent stops its workers and ends, saying nothing") {
    const std::string finish = "CloseStore; Finish(NoRendezvous no answer)";
    CHECK(Story::joining().lost() == finish);
    CHECK(Story::running().lost() == term);
    CHECK(Story::draining().lost() == "");
    CHECK(Story::drained().lost() == finish);
}

TEST_CASE("a stop request is heard in every state, and the same signal is forwarded without 'the round is over'") {
    const std::string leave = "SendLeave(stopped by SIGINT); CloseStore; Finish(Cancelled SIGINT)";
    CHECK(Story::idle().stop(SIGINT) == "Finish(Cancelled SIGINT)");
    CHECK(Story::joining().stop(SIGINT) == leave);
    CHECK(Story::starting().stop(SIGINT) == "NotifyWorkers; Signal(SIGINT)");
    CHECK(Story::running().stop(SIGINT) == "NotifyWorkers; Signal(SIGINT)");
    CHECK(Story::draining().stop(SIGINT) == "");
    CHECK(Story::drained().stop(SIGINT) == leave);
}

TEST_CASE("a stop request while the store is being opened closes it") {
    Story story;
    story.begin();
    CHECK(story.stop(SIGTERM) == "CloseStore; Finish(Cancelled SIGTERM)");
}

TEST_CASE("a second stop request kills at once") {
    Story story = Story::running();
    CHECK(story.stop(SIGTERM) == "NotifyWorkers; Signal(SIGTERM)");
    CHECK(story.stop(SIGTERM) == "KillTree");
    CHECK(story.stop(SIGTERM) == "");
    story.ended(0, Signaled{SIGKILL, false});
    CHECK(story.ended(1, Signaled{SIGKILL, false}) == "");
    CHECK(story.tree_empty() == "SendLeave(stopped by SIGTERM); CloseStore; Finish(Cancelled SIGTERM)");
}

TEST_CASE("a stop signal that a scheduler repeats takes nobody's grace, another one does") {
    Story story = Story::running();
    CHECK(story.stop(SIGHUP) == "NotifyWorkers; Signal(SIGHUP)");
    CHECK(story.stop(SIGHUP) == "");
    CHECK(story.time_left() == 30s);
    CHECK(story.stop(SIGINT) == "KillTree");
}

TEST_CASE("the grace is counted once, from the first signal, and ends in SIGKILL") {
    Story story = Story::draining();  // 1 s into it
    CHECK(story.time_left() == 29s);
    story.stop(SIGTERM);
    CHECK(story.time_left() == 29s);
    CHECK(story.elapse(28999ms) == "");
    CHECK(story.elapse(1ms) == "KillTree");
}

TEST_CASE("an agent without a drain has no deadline") {
    for (auto state : {Story::idle, Story::joining, Story::starting, Story::running, Story::drained})
        CHECK(state().time_left() == Duration::max());
}

TEST_CASE("after Finish nothing follows") {
    Story story = Story::joining();
    story.stop(SIGTERM);
    CHECK(story.phase() == Phase::done);
    CHECK(story.assigned(0) == "");
    CHECK(story.job_failed() == "");
    CHECK(story.stop(SIGTERM) == "");
    CHECK(story.guardian_lost() == "");
    CHECK(story.elapse(1h) == "");
}

TEST_CASE("the first ending stays: a cancelled agent is not turned into a failed one") {
    Story story = Story::running();
    story.stop(SIGTERM);
    CHECK(story.job_failed() == "");
    story.ended(0, Exited{0});
    story.ended(1, Exited{0});
    CHECK(story.tree_empty() == "AcknowledgeEnd; CloseStore; Finish(Cancelled SIGTERM)");
}

TEST_CASE("a cancelled agent whose round had ended reports it before it leaves") {
    Story story = Story::running();
    story.stop(SIGTERM);
    story.round_ended(0);
    story.ended(0, Exited{0});
    story.ended(1, Exited{0});
    CHECK(story.tree_empty() ==
          "ReportRound(0, failed [], stopped 2); SendLeave(stopped by SIGTERM); CloseStore; Finish(Cancelled SIGTERM)");
}

TEST_CASE("a round is never started twice") {
    Story story = Story::drained();
    story.round_ended(0);
    story.store_opened();
    CHECK(story.assigned(0) == "");
    CHECK(story.assigned(1) == "StartWorkers(1)");
}

TEST_CASE("no round is reported and none joined before every end and the empty tree were seen") {
    Story story = Story::draining();
    story.elapse(29s);
    CHECK(story.tree_empty() == "");
    CHECK(story.ended(0, Signaled{SIGKILL, false}) == "");
    CHECK(story.ended(1, Signaled{SIGKILL, false}) == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");
}

TEST_CASE("a failure says who, where and how") {
    Story story = Story::running();
    WorkerNotes notes;
    notes.message = "ValueError: bad batch";
    notes.error_file = "/l/error.json";
    notes.log_directory = "/l";
    notes.at_ns = 5;
    notes.wall_time_s = 9;
    const WorkerEnded ended{
        .local_rank = 1, .pid = 4242, .end = Exited{1}, .at = story.now, .stderr_tail = "Traceback"};
    story.step(HostEvent{ended, notes});
    const auto& reported = std::get<ReportFailed>(story.last().actions.at(0));
    const Failure expected{FailureKind::worker_error, "a",         "default",       1,    3, 1, 4242, Exited{1},
                           "ValueError: bad batch",   "Traceback", "/l/error.json", "/l", 5, 0, 9,    {}};
    CHECK(reported.failures == std::vector<Failure>{expected});
}

TEST_CASE("a failure is early when its words say so, no step was told and the start is not long ago") {
    const auto reported = [](Duration age, bool stepped) {
        Story story = Story::running();
        story.elapse(age);
        WorkerNotes notes;
        notes.stepped = stepped;
        WorkerEnded ended{.local_rank = 0, .pid = 1, .end = Exited{1}, .at = story.now};
        ended.stderr_tail = "ModuleNotFoundError: No module named 'apex'";
        story.step(HostEvent{ended, notes});
        return std::get<ReportFailed>(story.last().actions.at(0)).failures.at(0).early;
    };
    CHECK(reported(1s, false));
    CHECK_FALSE(reported(1s, true));
    CHECK_FALSE(reported(10min, false));
}

TEST_CASE("what is said once is not said again when time passes") {
    Story barrier = Story::running();
    barrier.ended(0, Exited{0});
    CHECK(barrier.ended(1, Exited{0}) == "ReportSucceeded");
    CHECK(barrier.elapse(1s) == "");

    Story last = Story::drained();
    CHECK(last.round_ended(0, true) == "ReportRound(0, failed [], stopped 1)");
    CHECK(last.elapse(1s) == "");
    CHECK(last.job_failed() == "AcknowledgeEnd; CloseStore; Finish(JobFailed no restart left)");
}

TEST_CASE("an empty tree that was told before the kill does not count") {
    Story story = Story::draining();
    story.tree_empty();
    story.ended(0, Exited{0});
    CHECK(story.ended(1, Exited{0}) == "KillTree");
    CHECK(story.phase() == Phase::draining);
    CHECK(story.tree_empty().starts_with("ReportRound"));
}

TEST_CASE("workers that save and leave after our signal are told of as such, and so is the agent's end") {
    Story all = Story::running();
    all.stop(SIGTERM);
    CHECK(all.ended(0, Exited{76}) == "ReportFailed(rank 2: exit code 76)");
    all.ended(1, Exited{76});
    const auto end = all.tree_empty();
    CHECK(end.ends_with("Finish(Drained after SIGTERM all of its workers saved and left (exit code 76))"));

    Story one = Story::running();
    one.stop(SIGTERM);
    one.ended(0, Exited{76});
    one.ended(1, Signaled{SIGTERM});
    CHECK(one.tree_empty().ends_with("Finish(Cancelled SIGTERM)"));
}

TEST_CASE("a worker beside one that saved and left by itself has its grace to do the same") {
    Story story = Story::running();
    CHECK(story.ended(0, Exited{76}) == "ReportFailed(rank 2: exit code 76); NotifyWorkers; Signal(SIGTERM)");
    CHECK(story.round_ended(0, true) == "");  // no stop on top of it
    CHECK(story.ended(1, Exited{76}) == "ReportFailed(rank 3: exit code 76); KillTree");
}

TEST_CASE("nothing is said where nobody listens") {
    Story cancelled = Story::running();
    cancelled.stop(SIGTERM);
    cancelled.lost();
    cancelled.ended(0, Exited{0});
    cancelled.ended(1, Exited{0});
    CHECK(cancelled.tree_empty() == "CloseStore; Finish(Cancelled SIGTERM)");

    Story refused = Story::running();
    refused.refused();
    CHECK(refused.ended_at(0, Exited{3}, refused.now - 2s) == "");
}
