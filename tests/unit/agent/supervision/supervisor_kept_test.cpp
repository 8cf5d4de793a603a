// Kept workers: asked to leave their round in place, held while the rest of the tree goes, and resumed, released or
// killed.
#include "tests/support/catch.h"
#include "tests/unit/agent/supervision/supervisor_story.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

const std::string hold = "Keep(0); SendHold(5 s)";
const WorkerEnd killed = Signaled{SIGKILL, false};
const WorkerEnd terminated = Signaled{SIGTERM, false};

/// In round 0; both workers run, and can be kept.
Story running() {
    Story story = Story::running();
    CHECK(story.can_keep(0).empty());
    CHECK(story.can_keep(1).empty());
    return story;
}

/// Worker 1 was killed, worker 0 is held, and nothing else of the round is left.
Story holding() {
    Story story = running();
    CHECK(story.ended(1, killed) == "ReportFailed(rank 3: signal 9 (SIGKILL)); " + hold);
    CHECK(story.held(0) == "KillTree");
    CHECK(story.tree_empty().empty());
    return story;
}

/// The same, and the daemon has ended the round: this node has joined.
Story joining() {
    Story story = holding();
    CHECK(story.round_ended(0) == "ReportRound(0, failed [], stopped 1); CloseStore; OpenStore");
    CHECK(story.store_opened() == "SendJoin(after 0, store 4000)");
    CHECK(story.phase() == Phase::joining);
    return story;
}

}  // namespace

TEST_CASE("a survivor that can be kept is held and resumed, and only the dead slot is started") {
    Story story = joining();
    CHECK(story.assigned(1, 1) == "StartWorkers(1, kept 0); Keep()");
    CHECK(story.phase() == Phase::starting);
    CHECK(story.started(1).empty());
    CHECK(story.phase() == Phase::running);
    CHECK(story.ended(0, Exited{0}).empty());
    CHECK(story.ended(1, Exited{0}) == "ReportSucceeded");
}

TEST_CASE("no Join is sent before each worker is gone or held") {
    Story story = running();
    CHECK(story.round_ended(0) == "Keep(0 1); SendHold(5 s)");
    CHECK(story.held(1).empty());
    CHECK(story.phase() == Phase::draining);
    CHECK(story.held(0) == "KillTree");
    CHECK(story.tree_empty() == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");
    story.store_opened();
    CHECK(story.assigned(1) == "StartWorkers(1, kept 0 1); Keep()");
    CHECK(story.phase() == Phase::running);
}

TEST_CASE("a worker of another version, without a word about it, gets today's end of the round") {
    Story story = Story::running();
    story.can_keep(0);
    CHECK(story.round_ended(0) == hold + "; " + term);
    CHECK(story.held(0).empty());
    CHECK(story.ended(1, terminated) == "KillTree");
    story.tree_empty();
    story.store_opened();
    CHECK(story.assigned(1) == "StartWorkers(1, kept 0); Keep()");
}

TEST_CASE("a worker that is not held in time is killed, and its slot is new") {
    Story story = running();
    CHECK(story.round_ended(0) == "Keep(0 1); SendHold(5 s)");
    CHECK(story.held(1).empty());
    CHECK(story.time_left() == 5s);
    CHECK(story.elapse(4999ms).empty());
    CHECK(story.elapse(1ms) == "SignalGroup(0, SIGKILL); Keep(1)");
    REQUIRE(story.last().notices.size() == 1);
    CHECK(story.last().notices[0] ==
          "rank 2 did not leave its round within 5 s, most likely because it is in a call that muster cannot "
          "interrupt; it is killed and started again, and the workers that are held stay");
    CHECK(story.ended(0, killed) == "KillTree");
    CHECK(story.tree_empty() == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");
    story.store_opened();
    CHECK(story.assigned(1) == "StartWorkers(1, kept 1); Keep()");
}

TEST_CASE("a word that comes after the limit does not count") {
    Story story = running();
    story.round_ended(0);
    story.held(1);
    story.elapse(5s);
    CHECK(story.held(0).empty());
    CHECK(story.can_keep(0).empty());
    CHECK(story.ended(0, killed) == "KillTree");
}

TEST_CASE("a worker that withdraws its word is stopped as any other") {
    Story story = running();
    story.round_ended(0);
    CHECK(story.held(1).empty());
    CHECK(story.cannot_keep(0) == "Keep(1); " + term + "; Keep(1)");
    CHECK(story.time_left() == 30s);
    CHECK(story.ended(0, Exited{0}) == "KillTree");
}

TEST_CASE("before the round ends, a worker may take its word back") {
    Story story = running();
    CHECK(story.cannot_keep(0).empty());
    CHECK(story.ended(1, killed) == "ReportFailed(rank 3: signal 9 (SIGKILL)); " + term);
}

TEST_CASE("a failure after which no round follows releases the workers that stay") {
    Story story = running();
    story.ended(1, killed);
    CHECK(story.round_ended(0, true) == "Keep(); " + term);
    CHECK(story.ended(0, terminated) == "KillTree");
}

TEST_CASE("workers of a job that ends, or of an agent that stops, are not held") {
    CHECK(running().job_failed() == term);
    CHECK(running().stop(SIGINT) == "NotifyWorkers; Signal(SIGINT)");
    CHECK(running().drain() == "NotifyWorkers; Signal(SIGTERM)");
    CHECK(running().lost() == term);
}

TEST_CASE("a held worker does not outlive the lease of its agent") {
    Story story = joining();
    CHECK(story.fenced() == "Keep(); KillTree");
    CHECK(story.time_left() == 5s);
    // S4: the next round waits for its end.
    CHECK(story.assigned(1, 1).empty());
    CHECK(story.ended(0, killed).empty());
    CHECK(story.tree_empty() == "StartWorkers(1)");
}

TEST_CASE("no Join is sent while held workers are dying") {
    Story story = holding();
    story.round_ended(0);
    CHECK(story.fenced() == "Keep(); KillTree");
    CHECK(story.store_opened().empty());
    story.ended(0, killed);
    CHECK(story.tree_empty() == "SendJoin(after 0, store 4000)");
}

TEST_CASE("what the daemon says about a round while held workers are dying is kept in order") {
    Story story = joining();
    story.fenced();
    CHECK(story.assigned(1, 1).empty());
    CHECK(story.round_ended(1).empty());
    story.ended(0, killed);
    CHECK(story.tree_empty() == "StartWorkers(1); " + term);
}

TEST_CASE("fencing in the middle of the hold kills everything at once") {
    Story story = running();
    story.ended(1, killed);
    CHECK(story.fenced() == "Keep(); " + term + "; KillTree");
    CHECK(story.held(0).empty());
    CHECK(story.ended(0, killed).empty());
    CHECK(story.tree_empty() == "CloseStore; OpenStore");
}

TEST_CASE("held workers of a node that becomes a spare are stopped, and the next round waits for their end") {
    Story story = joining();
    CHECK(story.parked() == "Keep(); " + term);
    CHECK(story.time_left() == 30s);
    CHECK(story.assigned(1, 1).empty());
    CHECK(story.ended(0, terminated) == "Keep(); KillTree");
    CHECK(story.tree_empty() == "StartWorkers(1)");
}

TEST_CASE("held workers that do not stop within the grace are killed") {
    Story story = joining();
    CHECK(story.parked() == "Keep(); " + term);
    CHECK(story.elapse(29999ms).empty());
    CHECK(story.elapse(1ms) == "Keep(); KillTree");
    CHECK(story.time_left() == 5s);
}

TEST_CASE("fencing and a second stop signal end the grace of held workers") {
    Story story = joining();
    story.parked();
    CHECK(story.fenced() == "Keep(); KillTree");
    Story other = joining();
    CHECK(other.stop(SIGINT) == "Keep(); SendRoundOver; Signal(SIGINT)");
    CHECK(other.stop(SIGINT) == "Keep(); KillTree");
}

TEST_CASE("what is fenced while KillTree leaves held workers alone is killed too, and its answer is not enough") {
    Story story = running();
    story.ended(1, killed);
    CHECK(story.held(0) == "KillTree");
    // The answer is under way.
    CHECK(story.fenced() == "Keep(); " + term + "; KillTree");
    CHECK(story.time_left() == 5s);
    CHECK(story.ended(0, killed).empty());
    CHECK(story.tree_empty() == "CloseStore; OpenStore");
}

TEST_CASE("the job's end while KillTree leaves held workers alone gives them their grace afterwards") {
    Story story = running();
    story.ended(1, killed);
    CHECK(story.held(0) == "KillTree");
    CHECK(story.job_failed().empty());
    CHECK(story.tree_empty() == "Keep(); " + term);
    CHECK(story.ended(0, terminated) == "Keep(); KillTree");
    CHECK(story.tree_empty() == "AcknowledgeEnd; CloseStore; Finish(JobFailed no restart left)");
}

TEST_CASE("an agent that ends stops its held workers first") {
    const auto ends = [](auto&& how, const std::string& last) {
        Story story = joining();
        CHECK(how(story) == "Keep(); " + term);
        CHECK(story.ended(0, terminated) == "Keep(); KillTree");
        CHECK(story.tree_empty() == last);
    };
    ends([](Story& story) { return story.stop(SIGTERM); },
         "SendLeave(stopped by SIGTERM); CloseStore; Finish(Cancelled SIGTERM)");
    ends([](Story& story) { return story.job_failed(); },
         "AcknowledgeEnd; CloseStore; Finish(JobFailed no restart left)");
    ends([](Story& story) { return story.lost(); }, "CloseStore; Finish(NoRendezvous no answer)");
}

TEST_CASE("held workers that SIGKILL does not end, end the agent") {
    Story story = joining();
    story.stop(SIGTERM);
    story.elapse(30s);
    CHECK(story.elapse(5s) == "SendLeave(stopped by SIGTERM); CloseStore; Finish(Cancelled SIGTERM)");
}

TEST_CASE("a worker that dies while it is held is started again with the others") {
    Story story = joining();
    // Nothing that it has started may live beside its successor. No signal or notice may leave that one out.
    CHECK(story.ended(0, Exited{3}) == "Keep(); KillTree");
    CHECK(story.assigned(1, 1).empty());
    CHECK(story.tree_empty() == "StartWorkers(1)");
}

TEST_CASE("of two held workers one dies, and the other stays") {
    Story story = running();
    story.round_ended(0);
    story.held(0);
    story.held(1);
    story.tree_empty();
    CHECK(story.ended(1, killed) == "Keep(0); KillTree");
    CHECK(story.store_opened().empty());
    CHECK(story.tree_empty() == "SendJoin(after 0, store 4000)");
    CHECK(story.assigned(1) == "StartWorkers(1, kept 0); Keep()");
}

TEST_CASE("a held worker whose channel is closed is killed") {
    Story story = joining();
    CHECK(story.cannot_keep(0) == "Keep(); KillTree");
    CHECK(story.ended(0, killed).empty());
    CHECK(story.assigned(1, 1).empty());
    CHECK(story.tree_empty() == "StartWorkers(1)");
}

TEST_CASE("a worker that is asked to hold and fails by itself was stopped") {
    Story story = running();
    story.round_ended(0);
    CHECK(story.ended(0, Exited{1}) == "Keep(1)");
    CHECK(story.held(1) == "KillTree");
    CHECK(story.tree_empty() == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");
    story.store_opened();
    CHECK(story.assigned(1) == "StartWorkers(1, kept 1); Keep()");
}

TEST_CASE("after the grace whoever is not held is killed") {
    Story story = Story::running();
    story.can_keep(0);
    story.round_ended(0);
    story.held(0);
    CHECK(story.time_left() == 30s);
    CHECK(story.elapse(30s) == "KillTree");
    CHECK(story.ended(1, killed).empty());
    CHECK(story.tree_empty() == "ReportRound(0, failed [], stopped 2); CloseStore; OpenStore");
}

TEST_CASE("a guardian that dies takes the held workers with it") {
    Story story = joining();
    CHECK(story.orphaned(0).empty());
    CHECK(story.guardian_replaced().empty());
    CHECK(story.assigned(1, 1) == "StartWorkers(1)");
}

TEST_CASE("a worker that was resumed is kept again after it has said so") {
    Story story = joining();
    story.assigned(1, 1);
    story.started(1);
    story.can_keep(0);
    CHECK(story.ended(1, killed) == "ReportFailed(rank 3: signal 9 (SIGKILL)); " + hold);
    CHECK(story.held(0) == "KillTree");
}

TEST_CASE("a round that cannot be prepared for workers that are all kept costs no restart") {
    Story story = running();
    story.round_ended(0);
    story.held(0);
    story.held(1);
    story.tree_empty();
    story.store_opened();
    story.assigned(1);
    CHECK(story.step(SetUpRefused{"the disk is full"}) == "ReportFailed(node); " + term);
    CHECK(story.last().why.back().text == "the disk is full");
}
