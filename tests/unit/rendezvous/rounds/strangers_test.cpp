// Dialogues with strangers: what somebody who was in no round of this daemon cannot do, whatever it says of itself.
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {

TEST_CASE("a refused join does not move the numbers of the rounds") {
    Story story("min=2 max=2 restarts=3");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("join s restarts=9 last_round=4611686018427387904"), "s <- Refused terms_differ"));
    CHECK(says(story.answers("join t last_round=4611686018427387905"), "t <- Refused malformed"));
    CHECK(says(story.answers("fail n0\nrejoin n0\nrejoin n1"), "round 1 sealed with 2 nodes"));
}

TEST_CASE("whatever number a stranger names, each number that the daemon gives is one that it accepts") {
    for (const auto* claim : {"join s last_round=4611686018427387904", "resume s round=4611686018427387904 of=2"}) {
        INFO(claim);
        Story story("min=1 max=2 restarts=9 last_call=1s");
        story.answers("join n0");
        story.answers(claim);
        story.answers("advance 200s\nleave s\nadvance 200s");
        for (int i = 0; i < 3; ++i) {
            const auto again = story.answers("fail n0\nrejoin n0\nadvance 20s");
            CHECK(says(again, "n0 <- Assigned round 23058430092136939"));  // 2^61 and some
            CHECK_FALSE(says(again, "malformed"));
        }
    }
}

TEST_CASE("who resumes a round that this daemon never sealed commands nobody, blocks nobody and costs nothing") {
    for (const auto* claim : {"resume s round=999 of=2 group=1 restarts=3", "resume s round=0 of=2 group=1 restarts=3",
                              "join s\nresume s round=999 of=2 group=1 restarts=3"}) {
        INFO(claim);
        Story story("min=2 max=2 restarts=3");
        story.answers("join n0\njoin n1\nadvance 30s");
        for (const auto* command : {"drain s node=n0", "notify s", "fault s kill rank=0"}) {
            CHECK(says(story.answers(claim), "s <- RoundEnded"));
            const auto answers = story.answers(command);
            CHECK_FALSE(says(answers, "n0 <-"));
            CHECK_FALSE(says(answers, "n1 <-"));
            CHECK_FALSE(says(answers, " done"));
        }
        CHECK(says(story.answers("fail n0\nrejoin n0\nrejoin n1"), "sealed with 2 nodes, 1 of 3 restarts used"));
    }
}

TEST_CASE("before the first round nobody commands anybody else") {
    Story story("min=3 max=3");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("drain n1 node=n0"), "not done: n1 (pid 102) has been in no round of job 'job'"));
    CHECK(says(story.answers("drain n1 node=n1"), "CommandAnswer 7 done"));
}

TEST_CASE("one agent's word for a round after a daemon's restart gives no command and costs no restart") {
    Story story("min=2 max=2 restarts=3 quiet_always lease=5s");
    story.answers("resume s round=9 of=2 group=0 restarts=3\njoin n0");
    for (const auto* command : {"drain s node=n0", "fault s kill rank=0"})
        CHECK_FALSE(says(story.answers(command), "n0 <-"));
    story.answers("fail s code=76\njoin n1");
    // It says that its workers stop, and never that they have.
    const auto later = story.answers("advance 36s");
    CHECK(says(later, "s (pid 101) is not waited for"));
    CHECK(says(later, "sealed with 2 nodes, 0 of 3 restarts used"));
    // A second one is not waited for at all.
    story.answers("resume t round=9 of=2 group=0 restarts=3\nfail n0\nrejoin n0");
    CHECK(says(story.answers("rejoin n1"), "sealed with 2 nodes, 1 of 3 restarts used"));
}

TEST_CASE("one agent that says that the only node of the job is through does not end the job") {
    Story story("min=1 max=2 quiet_always lease=5s last_call=1s");
    story.answers("join n0");
    CHECK_FALSE(says(story.answers("resume s round=9 of=1 done\nadvance 60s"), "JobEnded"));
}

TEST_CASE("only former members hear the verdict of a job; who joins late or beside it hears the plain end") {
    Story story("min=1 max=2 restarts=0 last_call=1s");
    story.answers("join n0\njoin n1\njoin s");
    const auto ended = story.answers("fail n0\nreport n0\nreport n1");
    CHECK(says(ended, "n0 n1 <- JobEnded failed after 0 restarts"));
    CHECK(says(ended, "; first: "));
    // Each one's line, without the others'.
    const auto told = [](const std::string& answers, std::string_view who) {
        const auto at = answers.find(cat("    ", who, " <- JobEnded"));
        return at == std::string::npos ? std::string() : answers.substr(at, answers.find('\n', at + 1) - at);
    };
    for (const auto& line : {told(ended, "s"), told(story.answers("resume u round=0 of=2"), "u"),
                             told(story.answers("join t last_round=0"), "t")}) {
        CHECK(says(line, "JobEnded failed after 0 restarts: a worker failed"));
        CHECK_FALSE(says(line, "first:"));
    }
}

TEST_CASE("members that agree on their round after a daemon's restart may command, and their failures are charged") {
    Story story("min=3 max=3 restarts=3 quiet_always lease=5s");
    story.answers("join n0\njoin n1\njoin n2\nadvance 6s\nrestart\nresume n0");
    CHECK(says(story.answers("drain n0 node=n1"), "not done: n0 (pid 101) has been in no round"));
    story.answers("resume n1");
    CHECK(says(story.answers("notify n0"), "NoticeGiven"));
    story.answers("resume n2");
    CHECK(says(story.answers("drain n2 node=n1"), "n1 <- Drain"));
    Story charged("min=2 max=2 restarts=3 quiet_always lease=5s");
    charged.answers("join n0\njoin n1\nadvance 6s\nfail n0\nrejoin n0\nrejoin n1\nrestart\nresume n0\nresume n1");
    CHECK(says(charged.answers("fail n0\nrejoin n0\nrejoin n1\nadvance 6s"), "2 of 3 restarts used"));
}

TEST_CASE("a stranger's other round after a daemon's restart does not end the one of two members") {
    Story story("min=2 max=2 restarts=3 quiet_always lease=5s");
    story.answers("join n0\njoin n1\nadvance 6s\nrestart\nresume n0\nresume n1");
    const auto answers = story.answers("resume s round=999 of=2 group=0 restarts=3");
    CHECK(says(answers, "s <- RoundEnded 999 daemon_restarted"));
    CHECK_FALSE(says(answers, "n0"));
    CHECK_FALSE(says(story.answers("advance 60s"), "ended"));
    CHECK(says(story.answers("fail n0\nrejoin n0\nrejoin n1"), "1 of 3 restarts used"));
}

TEST_CASE("who was given up and comes back with its workers blocks the seal, also at the next daemon") {
    for (const auto* terms : {"min=1 max=2 lost=5s lease=5s", "min=1 max=2 lost=5s lease=5s kept"}) {
        INFO(terms);
        Story story(terms);
        story.answers("join n0\njoin n1\nclose n1\nadvance 12s\nreport n0");
        if (says(terms, "kept")) story.answers("restart\nresume n0");
        story.answers("resume n1");
        CHECK_FALSE(says(story.answers("join n0\nadvance 100s"), "sealed"));
        CHECK(says(story.answers("rejoin n1"), "sealed with 2 nodes"));
    }
}

}  // namespace muster::test
