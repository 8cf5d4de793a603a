// Dialogues about what people ask of a job: one node to go, all workers to be told.
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {

TEST_CASE("a drained node leaves, its spare takes its rank, and nothing is charged") {
    Story story("min=2 max=2 spares=1 restarts=0");
    story.answers("join n0\njoin n1\njoin n2");
    const auto answers = story.answers("drain n0 node=n1");
    CHECK(says(answers, "n1 <- Drain: maintenance"));
    CHECK(says(answers, "n0 <- CommandAnswer 7 done: n1:102 was ordered to stop its workers and leave\n"));
    CHECK_FALSE(says(answers, "RoundEnded"));  // the round goes on: its workers may save
    CHECK(says(story.answers("leave n1"), "n0 <- RoundEnded 0 node_left"));
    const auto sealed = story.answers("rejoin n0");
    CHECK(says(sealed, "round 1 sealed with 2 nodes, 0 of 0 restarts used"));
    CHECK(says(sealed, "n2 <- Assigned round 1: group rank 1 of 2"));
}

TEST_CASE("workers that save and leave because one node is drained do not end the job, and cost nothing") {
    Story story("min=1 max=2 restarts=0");
    story.answers("join n0\njoin n1\ndrain n0 node=n1");
    const auto ended = story.answers("fail n0 code=76");
    CHECK(says(ended, "n0 n1 <- RoundEnded 0 worker_failed: "));
    CHECK_FALSE(says(ended, "final"));
    story.answers("rejoin n0");
    CHECK(says(story.answers("leave n1"), "round 1 sealed with 1 node, 0 of 0 restarts used"));
    // In the next round nobody is drained, and 76 is a last word again.
    CHECK(says(story.answers("fail n0 code=76\nreport n0"), "n0 <- JobEnded failed after 0 restarts"));
}

TEST_CASE("a real failure while a node is drained is a failure") {
    Story story("min=1 max=2 restarts=0");
    story.answers("join n0\njoin n1\ndrain n0 node=n1");
    CHECK(says(story.answers("fail n0"), "n0 n1 <- RoundEnded 0 worker_failed final"));
}

TEST_CASE("a node that is told to leave is in no further round, and is told again when it comes back") {
    Story story("min=1 max=2 restarts=3");
    story.answers("join n0\njoin n1\ndrain n0 node=n1\nclose n1\nfail n0");
    CHECK(says(story.answers("resume n1"), "n1 <- Drain: maintenance"));
    story.answers("rejoin n0");
    CHECK(says(story.answers("rejoin n1"), "round 1 sealed with 1 node"));
    CHECK_FALSE(says(story.answers("advance 60s"), "ended"));  // and it is no late joiner
}

TEST_CASE("a command for what does not exist is answered with what does") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("drain n0 node=gpu99"),
               "n0 <- CommandAnswer 7 not done: the job has no node 'gpu99'; it has n0:101, n1:102"));
    CHECK(says(story.answers("fail n0\nnotify n0"), "CommandAnswer 8 not done: no round of the job is running"));
}

TEST_CASE("who drains below the minimum is told that the job then waits") {
    Story story("min=2 max=2");
    story.answers("join n0\njoin n1");
    CHECK(says(
        story.answers("drain n1 node=n0:101"),
        "done: n0:101 was ordered to stop its workers and leave; the job then waits for another node, because 1 is "
        "left and it needs 2"));
}

TEST_CASE("the node of an embedded daemon is not drained") {
    Story story("min=1 max=2 embedded");
    story.answers("join n0 hosts\njoin n1");
    const auto answers = story.answers("drain n1 node=n0");
    CHECK(says(answers, "not done: n0:101 serves the rendezvous"));
    CHECK_FALSE(says(answers, "<- Drain"));
}

TEST_CASE("a notice goes to every node of the round") {
    Story story("min=2 max=2");
    story.answers("join n0\njoin n1\njoin n2");
    const auto answers = story.answers("notify n1");
    CHECK(says(answers, "n0 n1 <- NoticeGiven: SIGUSR1 to gpu07"));
    CHECK(says(answers, "n1 <- CommandAnswer 8 done: notice sent to the workers of 2 nodes"));
    CHECK_FALSE(says(answers, "RoundEnded"));
    // A scheduler signals every node. Later ones are a second notice.
    const auto again = story.answers("notify n0");
    CHECK(says(again, "n0 <- CommandAnswer 8 done: all workers have just received a notice"));
    CHECK_FALSE(says(again, "NoticeGiven"));
    CHECK(says(story.answers("advance 3s\nnotify n0"), "n0 n1 <- NoticeGiven: SIGUSR1 to gpu07"));
}

TEST_CASE("a node that was away when all were told hears of the notice when it is back, and once") {
    for (const auto* away : {"close n0", "restart\nresume n1"}) {
        INFO(away);
        Story story("min=2 max=2 lease=5s");
        story.answers("join n0\njoin n1");
        story.answers(away);
        const auto first = story.answers("notify n1");
        CHECK(says(first, "n1 <- NoticeGiven: SIGUSR1 to gpu07"));
        CHECK_FALSE(says(first, "n0 "));
        CHECK(says(story.answers("advance 400ms\nresume n0"), "n0 <- NoticeGiven: SIGUSR1 to gpu07"));
        CHECK_FALSE(says(story.answers("close n0\nresume n0\nclose n1\nresume n1"), "NoticeGiven"));
    }
    // A daemon that takes over knows who has not heard it.
    Story kept("min=2 max=2 kept");
    kept.answers("join n0\njoin n1\nclose n1\nnotify n0");
    const auto back = kept.answers("restart\nresume n0\nresume n1");
    CHECK(says(back, "n1 <- NoticeGiven: SIGUSR1 to gpu07"));
    CHECK_FALSE(says(back, "n0 <- NoticeGiven"));
    CHECK_FALSE(says(kept.answers("notify n1"), "NoticeGiven"));
    Story next("min=2 max=2 restarts=1");
    next.answers("join n0\njoin n1\nnotify n0\nfail n1\nrejoin n0\nrejoin n1");
    CHECK_FALSE(says(next.answers("close n0\nresume n0"), "NoticeGiven"));  // of a round that is over
}

TEST_CASE("a node that has not read its assignment hears of the notice with it") {
    for (const auto* lost : {"close n1\nlose n1\nnotify n0", "notify n0\nclose n1\nlose n1"}) {
        INFO(lost);
        Story story("min=2 max=2");
        story.answers("join n0\njoin n1");
        story.answers(lost);
        const auto answers = story.answers("join n1");
        CHECK(says(answers, "n1 <- Assigned round 0: "));
        CHECK(says(answers, "n1 <- NoticeGiven: SIGUSR1 to gpu07"));
        CHECK_FALSE(says(story.answers("close n1\nresume n1"), "NoticeGiven"));
    }
}

TEST_CASE("who waits beside the round commands nobody but itself") {
    Story story("min=2 max=2 spares=1");
    story.answers("join n0\njoin n1\njoin n2");
    for (const auto* command : {"drain n2 node=n0", "notify n2", "fault n2 kill rank=0"}) {
        const auto answers = story.answers(command);
        CHECK(says(answers, "not done: n2 (pid 103) has been in no round of job 'job'"));
        CHECK_FALSE(says(answers, "Refused"));
        CHECK_FALSE(says(answers, "n0 <-"));
        CHECK_FALSE(says(answers, "n1 <-"));
    }
    CHECK(says(story.answers("drain n2 node=n2"), "CommandAnswer 7 done: n2:103 was ordered"));
}

TEST_CASE("a notice that comes again after a takeover is the same one") {
    Story story("min=2 max=2 kept");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("notify n0"), "n0 n1 <- NoticeGiven"));
    // Its answer was lost with the daemon; and the other node's signal had not been passed on yet.
    story.answers("restart 6s\nresume n0\nresume n1\nadvance 1s");
    const auto again = story.answers("notify n0\nnotify n1");
    CHECK_FALSE(says(again, "NoticeGiven"));
    CHECK(says(again, "n0 <- CommandAnswer 8 done: all workers have just received a notice"));
    // Later it is another one.
    CHECK(says(story.answers("advance 10s\nnotify n0"), "n0 n1 <- NoticeGiven"));
    story.answers("restart 60s\nresume n0\nresume n1");
    CHECK(says(story.answers("notify n0"), "n0 n1 <- NoticeGiven"));
}

}  // namespace muster::test
