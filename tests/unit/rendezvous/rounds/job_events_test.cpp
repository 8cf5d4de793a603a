// What a job's events say, and how its time is counted.
#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/transcripts/story.h"

namespace muster::test {

namespace {

std::size_t count_of(std::string_view what, std::string_view text) {
    std::size_t count = 0;
    for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
    return count;
}

nlohmann::json job_of(Story& story) {
    return nlohmann::json::parse(story.answers("show job"))["jobs"][0];
}

}  // namespace

TEST_CASE("every sentence of the log is an event, and what the log leaves out is one, too") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1");
    CHECK(story.answers("show events") ==
          "\n    muster.job.started.v1 job 'job' is started by n0 (pid 101)\n"
          "    muster.node.joined.v1 job 'job': n0 (pid 101) joined\n"
          "    muster.job.waiting.v1 job 'job' waits for 1 more node\n"
          "    muster.node.joined.v1 job 'job': n1 (pid 102) joined\n"
          "    muster.round.sealed.v1 job 'job': round 0 sealed with 2 nodes, 0 of 1 restarts used\n");
    story.answers("fail n0 code=3\nrejoin n0\nrejoin n1");
    const auto failed = story.answers("show events");
    const std::vector<std::string> expected{"worker.failed", "round.ended", "round.drained", "round.sealed"};
    std::size_t at = 0;
    for (const auto& one : expected) {
        at = failed.find(one, at);
        INFO(one << " in\n" << failed);
        REQUIRE(at != std::string::npos);
    }
    story.answers("succeed n0\nsucceed n1");
    CHECK(says(story.answers("show events"), "muster.job.ended.v1 job 'job' succeeded: all workers exited 0"));
}

TEST_CASE("a round steps once all nodes have reported a step of every worker") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0 slots=2\njoin n1 slots=2\nadvance 4s\nseen n0 step=7\nseen n1\nshow events");
    CHECK_FALSE(job_of(story).contains("step"));
    CHECK_FALSE(says(story.answers("show events"), "round.stepping"));
    story.answers("seen n1 step=5");
    CHECK(says(story.answers("show events"),
               "round.stepping.v1 job 'job': all ranks of round 0 have completed a step (5)"));
    CHECK(job_of(story)["step"] == 5);
    story.answers("seen n1 step=9");
    CHECK(job_of(story)["step"] == 7);
    CHECK_FALSE(says(story.answers("show events"), "round.stepping"));
    // In the next round everybody starts.
    story.answers("fail n0 code=3\nrejoin n0\nrejoin n1");
    CHECK_FALSE(job_of(story).contains("step"));
}

TEST_CASE("steps of another node's ranks, and steps that no program can have reached, are none") {
    Story story("min=2 max=2");
    story.answers("join n0 slots=2\njoin n1 slots=2\nseen n0 step=7\nseen n1 step=7 base=0\nseen n1 step=7 base=4");
    CHECK_FALSE(job_of(story).contains("step"));
    story.answers("seen n1 step=9223372036854775807");
    CHECK_FALSE(job_of(story).contains("step"));
    story.answers("seen n1 step=5");
    CHECK(job_of(story)["step"] == 5);
}

TEST_CASE("how far a round is becomes an event every ten seconds, and more rarely the longer it runs") {
    Story story("min=1 max=1");
    story.answers("join n0\nseen n0 step=1\nshow events\nadvance 5s\nseen n0 step=2\nadvance 5s\nseen n0 step=3");
    const auto events = story.answers("show events");
    INFO(events);
    CHECK(count_of("round.progress", events) == 1);
    CHECK(says(events, "round.progress.v1 job 'job': all ranks of round 0 have completed step 3"));
    // Every minute for 100 minutes, then every second one; at last every fifth, which only the whole day reaches.
    std::string minutes;
    for (int minute = 0; minute < (under_sanitizer ? 3 : 24) * 60; ++minute) minutes += "advance 60s\nseen n0 step=4\n";
    story.answers(minutes);
    const auto count = count_of("round.progress", story.answers("show events"));
    CHECK(count > (under_sanitizer ? 130 : 280));
    CHECK(count < (under_sanitizer ? 150 : 600));
}

TEST_CASE("ranks that wait for one that does nothing are a suspected hang until they go on") {
    Story story("min=2 max=2");
    story.answers(
        "join n0\njoin n1\nseen n0 step=1\nseen n1 step=1\nadvance 5s\nseen n0 step=9 waiting\nseen n1 step=8 overdue");
    CHECK(says(story.answers("show events"),
               "hang.suspected.v1 job 'job': ranks wait in an operation that others do not reach"));
    story.answers("advance 7s\nseen n0 step=10");
    CHECK(says(story.answers("show events"), "hang.over.v1"));
    CHECK(job_of(story)["goodput"]["hung"] == 7);
    CHECK(job_of(story)["goodput"]["stepping"] == 5);
}

TEST_CASE("a hang begins with the last step of any rank, where three median steps have passed since") {
    for (const auto& [step_ms, hung] : {std::pair{"100ms", 8}, std::pair{"2s", 7}}) {
        Story story("min=2 max=2");
        story.answers(cat("join n0\njoin n1\nseen n0 step=1 median=", step_ms, "\nseen n1 step=1\nadvance 5s\n",
                          "seen n0 step=9 waiting stepped=1s median=", step_ms, "\nseen n1 step=8 overdue stepped=2s"));
        story.answers("advance 7s\nseen n0 step=10");
        INFO(step_ms);
        CHECK(job_of(story)["goodput"]["hung"] == hung);
        CHECK(job_of(story)["goodput"]["stepping"] == 12 - hung);
    }
}

TEST_CASE("the time from a failure to the end of its round, and sections of ranks, have their own place") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1\nseen n0 step=1\nseen n1 step=1\nadvance 20s\nseen n0 step=9 evaluating=4s");
    CHECK(job_of(story)["goodput"]["section:evaluation"] == 4);
    story.answers("advance 5s\nfail n0 code=3 ago=2s");
    const auto time = job_of(story)["goodput"];
    CHECK(time["detecting"] == 2);
    CHECK(time["stepping"] == 19);
}

TEST_CASE("a failure that is reported twice is one event, and counts once") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1\nfail n0 code=3\nfail n0 code=3\nfail n1 comm");
    CHECK(count_of("worker.failed", story.answers("show events")) == 2);
    CHECK(story.answers("show failures") == "\n    communication_error (unknown): 1\n    worker_error (unknown): 1\n");
}

TEST_CASE("a node that falls silent is lost once, and one that waits is no failure") {
    Story story("min=2 max=2 restarts=1 lease=2s lost=600s");
    story.answers("join n0\njoin n1\njoin n2\nsilence n1\nsilence n2\nadvance 10s");
    const auto events = story.answers("show events");
    INFO(events);
    CHECK(count_of("node.lost.v1 job 'job': n1 (pid 102)", events) == 1);
    CHECK(says(events, "job.note.v1 job 'job': n1 (pid 102) is gone"));
    CHECK(says(events, "node.lost.v1 job 'job': n2 (pid 103)"));
    CHECK(story.answers("show failures") == "\n    node_lost (unknown): 1\n");
}

TEST_CASE("a node that stopped its workers by itself is lost to the round") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1\nreconnect n1\njoin n1 last_round=0");
    CHECK(count_of("node.lost.v1 job 'job': n1 (pid 102) stopped its workers", story.answers("show events")) == 1);
    CHECK(story.answers("show failures") == "\n    node_lost (unknown): 1\n");
}

TEST_CASE("the steps of a node that died count for the lost work of its round") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1\nseen n0 step=41\nseen n1 step=41\nadvance 10s\nseen n0 step=100\nseen n1 step=50");
    story.answers("kill n1\nrejoin n0 checkpoint=45\njoin n2");
    CHECK(job_of(story)["goodput"]["lost_steps"] == 0);  // The next round may resume from another step.
    story.answers("seen n0 step=46 first=46\nseen n2 step=46 first=46");
    CHECK(job_of(story)["goodput"]["lost_steps"] == 5);
}

TEST_CASE("lost work is exactly from the first step that is repeated to the last one that all ranks had completed") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1\nseen n0 step=1 first=1\nseen n1 step=1 first=1\nadvance 100s");
    // The last words are of the moment of the end, and come after the round has ended.
    story.answers("fail n0 code=3\nseen n0 step=100 first=1 final\nrejoin n0 checkpoint=90");
    story.answers("seen n1 step=101 first=1 final\nrejoin n1 checkpoint=90");
    CHECK(says(story.answers("show events"), "round.drained"));
    // The program resumes from an older one than the newest; it is seen only after its third step.
    story.answers("seen n0 step=83 first=81\nseen n1 step=82 first=81");
    CHECK(job_of(story)["goodput"]["lost_steps"] == 20);
    CHECK(job_of(story)["goodput"]["lost_work"] == 20);
    // In the second round they do not count twice.
    story.answers("seen n0 step=100 first=81\nseen n1 step=100 first=81");
    CHECK(job_of(story)["goodput"]["lost_steps"] == 20);
}

TEST_CASE("what the only node did before it died is lost where the next one repeats it") {
    Story story("min=1 max=1 restarts=1");
    story.answers("join n0\nseen n0 step=41 first=41\nadvance 10s\nseen n0 step=50 first=41\nkill n0\njoin n1");
    CHECK(job_of(story)["goodput"]["lost_steps"] == 0);
    story.answers("seen n1 step=49 first=49");
    CHECK(job_of(story)["goodput"]["lost_steps"] == 2);
}

TEST_CASE("a checkpoint that is complete just before its workers end is an event, once") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1\nseen n0 step=7 committed=4");
    CHECK(says(story.answers("show events"), "the checkpoint of step 4 is complete"));
    story.answers("fail n0 code=3\nseen n0 step=9 committed=9 final");
    CHECK(says(story.answers("show events"), "the checkpoint of step 9 is complete"));
    story.answers("seen n0 step=9 committed=9 final\nrejoin n0\nrejoin n1");
    CHECK_FALSE(says(story.answers("show events"), "checkpoint.committed"));
}

TEST_CASE("the newest checkpoint of the last round is in the status of the next one") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1");
    CHECK_FALSE(job_of(story).contains("checkpoint_step"));
    story.answers("fail n0 code=3\nrejoin n0 checkpoint=40\nrejoin n1 checkpoint=39");
    CHECK(job_of(story)["phase"] == "running");
    CHECK(job_of(story)["checkpoint_step"] == 40);
}

TEST_CASE("a job that has lost all of its nodes has an end") {
    Story story("min=2 max=2 lost=10s");
    story.answers("join n0\nleave n0");
    CHECK(says(story.answers("show events"), "job.ended.v1 job 'job' is given up: it has no node any more"));
}

TEST_CASE("a job that is started again ends and starts once each") {
    Story story("min=1 max=1");
    story.answers("join n0\nkill n0\njoin n1 restarts=5");
    const auto events = story.answers("show events");
    INFO(events);
    CHECK(count_of("job.ended", events) == 1);
    CHECK(count_of("job.started", events) == 2);
    CHECK(events.find("job.ended") < events.rfind("job.started"));
}

TEST_CASE("a node that is through before the others step does not keep the round from stepping") {
    Story story("min=2 max=2");
    story.answers("join n0\njoin n1\nsucceed n0\nseen n1 step=7");
    CHECK(says(story.answers("show events"), "all ranks of round 0 have completed a step (7)"));
    CHECK(job_of(story)["step"] == 7);
    Story silent("min=2 max=2");
    silent.answers("join n0\njoin n1\nsucceed n0\nsucceed n1");
    CHECK_FALSE(says(silent.answers("show events"), "round.stepping"));
}

TEST_CASE(
    "the queue before the first node, and the load of a checkpoint before the first step, are in the job's time") {
    Story story("min=2 max=2 restarts=0");
    story.answers("join n0 queued=60000\nadvance 5s\njoin n1 queued=65000\nadvance 20s");
    story.answers("seen n0 loading=9s\nseen n1 loading=12s\nseen n0 step=1 loading=9s\nseen n1 step=1 loading=12s");
    const auto time = job_of(story)["goodput"];
    INFO(time.dump());
    CHECK(time["queued"] == 60);
    CHECK(time["waiting_nodes"] == 5);
    CHECK(time["loading_checkpoint"] == 12);
    CHECK(time["starting"] == 8);
    CHECK(time["wall_clock"] == 85);
}

TEST_CASE("the newest checkpoint of each tier has an age, and in memory it is what all nodes have") {
    Story story("min=2 max=2 restarts=0");
    story.answers(
        "join n0\njoin n1\nadvance 5s\nseen n0 step=9 memory=8 shared=5\nadvance 5s\nseen n1 step=9 memory=7");
    CHECK(job_of(story)["checkpoints"] ==
          nlohmann::json::parse(R"({"memory":{"step":7,"age_s":0},"shared":{"step":5,"age_s":5}})"));
    story.answers("advance 30s\nseen n0 step=19 memory=8 shared=5\nseen n1 step=19 memory=18\nadvance 3s");
    CHECK(job_of(story)["checkpoints"] ==
          nlohmann::json::parse(R"({"memory":{"step":8,"age_s":3},"shared":{"step":5,"age_s":38}})"));
    Story none("min=2 max=2");
    none.answers("join n0\njoin n1\nseen n0 step=9");
    CHECK_FALSE(job_of(none).contains("checkpoints"));
}

TEST_CASE("after the loss of a node or a restart of the daemon no checkpoint looks fresher or safer than it is") {
    Story story("min=2 max=2 restarts=1 kept");
    story.answers("join n0\njoin n1\nseen n0 step=9 memory=8 shared=5\nseen n1 step=9 memory=8\nadvance 60s");
    story.answers("restart\nresume n0\nresume n1\nseen n0 step=9 memory=8 shared=5\nseen n1 step=9 memory=8");
    CHECK(job_of(story)["checkpoints"] == nlohmann::json::parse(R"({"memory":{"step":8},"shared":{"step":5}})"));
    story.answers("seen n0 step=29 memory=28 shared=25\nseen n1 step=29 memory=28\nadvance 4s");
    CHECK(job_of(story)["checkpoints"] ==
          nlohmann::json::parse(R"({"memory":{"step":28,"age_s":4},"shared":{"step":25,"age_s":4}})"));
    story.answers("died n1");
    CHECK(job_of(story)["checkpoints"] == nlohmann::json::parse(R"({"shared":{"step":25,"age_s":4}})"));
}

TEST_CASE("the status has the job's time, and the end of the job has it as a sentence") {
    Story story("min=1 max=1 restarts=0");
    story.answers("join n0\nadvance 10s\nseen n0 step=1\nadvance 30s\nseen n0 step=40");
    const auto time = job_of(story)["goodput"];
    CHECK(time["wall_clock"] == 40);
    CHECK(time["starting"] == 10);
    CHECK(time["stepping"] == 30);
    CHECK(time["text"] == "75 % of 40 s trained; 10 s starting");
    story.answers("succeed n0");
    CHECK(says(job_of(story)["goodput"]["text"].get<std::string>(), "75 % of 40 s trained"));
}

}  // namespace muster::test
