// Dialogues with the daemon, one for each rule of STATES.md that no transcript under tests/transcripts/stories tells.
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {

TEST_CASE("an agent that lost the answer to its join gets it again") {
    Story story("min=1 max=2");
    story.answers("join n0\njoin n1\nclose n1");
    // The join says that round -1 was its last: it has not seen round 0.
    CHECK(says(story.answers("lose n1\njoin n1"), "n1 <- Assigned round 0: group rank 1 of 2"));
}

TEST_CASE(
    "a node that missed its assignment, and whose peer is through and gone, takes part in the next round at once") {
    Story story("min=2 max=2");
    story.answers("join n0\njoin n1\nlose n0\nsucceed n1\nkill n1\nclose n0");
    const auto again = story.answers("join n0");
    CHECK(says(again, "round 0 ended: n0 (pid 101) joined too late"));
    CHECK_FALSE(says(again, "n0 <- RoundEnded"));
    CHECK(says(story.answers("join n2\nadvance 30s"), "round 1 sealed with 2 nodes"));
}

namespace {

/// n0 had lost the daemon like n1, and is heard again just before n1 is given up.
constexpr const char* one_is_heard_again =
    "join n0\njoin n1\njoin n2\nadvance 5s\nsilence n0\nsilence n1\nadvance 4900ms\nspeak n0";
constexpr const char* spares = "min=1 max=2 spares=1 restarts=1 last_call=1s lease=5s lost=60s";

}  // namespace

TEST_CASE("a node that goes without having joined delays the seal beside one that was given up") {
    for (const auto* how : {"leave n0", "died n0", "report n0\nclose n0\nadvance 500ms"}) {
        INFO(how);
        Story story(spares);
        story.answers(one_is_heard_again + std::string("\nadvance 650ms"));
        CHECK_FALSE(says(story.answers(how), "round 1 sealed"));
        CHECK_FALSE(says(story.answers("advance 5499ms"), "round 1 sealed"));
        CHECK(says(story.answers("advance 1ms"), "round 1 sealed"));
    }
    Story earlier(spares);  // the other one is given up later: here nobody of the round is heard then
    earlier.answers(one_is_heard_again);
    earlier.answers("leave n0");
    CHECK_FALSE(says(earlier.answers("advance 10s"), "round 1 sealed"));
    Story lost(std::string(spares) + " kept");  // the next daemon goes on with the wait
    lost.answers(one_is_heard_again + std::string("\nadvance 650ms\nleave n0\nrestart 1s"));
    CHECK_FALSE(says(lost.answers("join n2\nadvance 4499ms"), "round 1 sealed"));
    CHECK(says(lost.answers("advance 1ms"), "round 1 sealed"));
}

TEST_CASE("a job whose last node leaves beside one that was given up begins anew no sooner than it would seal") {
    Story story("min=1 max=2 last_call=1s lease=5s lost=60s");
    story.answers(
        "join n0\njoin n1\nadvance 5s\nsilence n0\nsilence n1\nadvance 4900ms\nspeak n0\nadvance 650ms\nleave n0");
    CHECK_FALSE(says(story.answers("join n2\nadvance 5499ms"), "sealed"));
    CHECK(says(story.answers("advance 1ms"), "round 1 sealed"));
}

TEST_CASE("no seal is delayed where nobody was given up, or a node of the round has joined again") {
    Story crash(spares);
    crash.answers("join n0\njoin n1\njoin n2\nadvance 5s\nsilence n1\nadvance 5s\nrejoin n0");
    CHECK(says(crash.answers("advance 500ms"), "round 1 sealed"));
    for (const auto* how : {"leave n1", "died n1"}) {
        INFO(how);
        Story one(spares);
        one.answers("join n0\njoin n1\njoin n2\nadvance 5s");
        CHECK(says(one.answers(how + std::string("\nrejoin n0")), "round 1 sealed"));
        Story both(spares);
        both.answers("join n0\njoin n1\njoin n2\nadvance 5s");
        CHECK(says(both.answers(how + std::string("\nleave n0")), "round 1 sealed"));
    }
    Story three("min=1 max=3 spares=1 restarts=1 last_call=1s lease=5s lost=60s");
    three.answers("join n0\njoin n1\njoin n2\njoin n3\nadvance 5s\nsilence n1\nadvance 5s\nrejoin n0\nadvance 1s");
    CHECK(says(three.answers("leave n2"), "round 1 sealed"));
}

TEST_CASE("a new daemon does not take a succeeded node for one whose word the others' workers need") {
    Story story("min=1 max=3 spares=1 restarts=1 last_call=1s lease=5s lost=60s quiet_always");
    story.answers("join n0\njoin n1\njoin n2\nadvance 5s\nsucceed n2\nrestart\nresume n0\nresume n1\nresume n2 done");
    CHECK_FALSE(says(story.answers("silence n0\nsilence n1\nadvance 50s"), "was lost"));
    CHECK(says(story.answers("advance 11s"), "n0 (pid 101) was lost"));
}

TEST_CASE("those who wait for more nodes are told why one that came was refused, until another one joins") {
    Story story("min=3 max=3");
    story.answers("join n0\nadvance 1s");
    const std::string why = "the last node was refused: the minimum of nodes is 3 at n0 (pid 101) and 2 at n1";
    CHECK(says(story.answers("join n1 min=2"), "n0 <- Gathering 1 of 3..3; waiting for 2 more nodes; " + why));
    CHECK_FALSE(says(story.answers("advance 1s\njoin n2"), "refused"));
    // At most once in a second, however many come.
    CHECK_FALSE(says(story.answers("join n3 min=2\njoin n4 min=2"), "Gathering"));
    CHECK(says(story.answers("advance 1s"), "2 at n4"));
}

TEST_CASE("those who wait for more nodes are told of a torchrun that waits for them in the store, once") {
    Story story("min=2 max=2");
    story.answers("join n0\nadvance 1s");
    CHECK(
        says(story.answers("torchrun 10.0.0.7"),
             "n0 <- Gathering 1 of 2..2; waiting for 1 more node; torchrun on 10.0.0.7 waits here for a job with this "
             "name, but muster and torchrun cannot form one job"));
    CHECK_FALSE(says(story.answers("advance 1s\ntorchrun 10.0.0.7\nadvance 1s"), "Gathering"));
    CHECK(says(story.answers("torchrun 10.0.0.8"), "; torchrun on 10.0.0.7, 10.0.0.8 waits here for a job"));
    // Both look at the store again and again.
    const auto again = story.answers("advance 1s\ntorchrun 10.0.0.7\ntorchrun 10.0.0.8\nadvance 1s");
    CHECK_FALSE(says(again, "torchrun"));
    CHECK(says(story.answers("join n1"), "round 0 sealed with 2 nodes"));
    CHECK_FALSE(says(story.answers("torchrun 10.0.0.7\nadvance 1s"), "torchrun"));
}

TEST_CASE("an agent that joins while its round runs has given it up, and the round ends for all") {
    Story story("min=1 max=2");
    story.answers("join n0\njoin n1");
    const auto answers = story.answers("join n1");
    CHECK(says(answers, "n0 <- RoundEnded 0 node_lost: n1 (pid 102) stopped its workers"));
    CHECK(says(story.answers("rejoin n0"), "round 1 sealed with 2 nodes"));
}

TEST_CASE("a connection that overtakes the end of the older one replaces it") {
    Story story("min=1 max=2");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("resume n1"), "close n1: replaced by a newer connection of the same agent"));
    CHECK_FALSE(says(story.answers("advance 20s"), "ended"));
}

TEST_CASE("a failure that nobody but victims report is not charged as long as a node may be gone") {
    Story story("min=1 max=2 restarts=0");
    story.answers("join n0\njoin n1\nsilence n1\nadvance 1s");
    CHECK(says(story.answers("fail n0 comm"), "n0 n1 <- RoundEnded 0 worker_failed: "));
    CHECK_FALSE(says(story.answers("rejoin n0"), "sealed"));
    const auto answers = story.answers("advance 6s");
    CHECK(says(answers, "round 1 sealed with 1 node, 0 of 0 restarts used"));
}

TEST_CASE("the victims of a node that was told to stop are not charged, a fault of their own is") {
    Story victims("min=1 max=2 restarts=1");
    victims.answers("join n0\njoin n1\nfail n0 comm\nrejoin n0");
    CHECK(says(victims.answers("leave n1"), "round 1 sealed with 1 node, 0 of 1 restarts used"));
    Story fault("min=1 max=2 restarts=1");
    fault.answers("join n0\njoin n1\nfail n0\nrejoin n0");
    CHECK(says(fault.answers("leave n1"), "round 1 sealed with 1 node, 1 of 1 restarts used"));
}

TEST_CASE("a silent survivor holds up the seal, a silent spare does not") {
    Story story("min=1 max=2 spares=1");
    story.answers("join n0\njoin n1\njoin n2\nsilence n2\nadvance 1s");
    story.answers("fail n0\nrejoin n0");
    CHECK(says(story.answers("rejoin n1"), "round 1 sealed") == false);  // --max-restarts=0: over instead
    Story other("min=1 max=2 spares=1 restarts=3");
    other.answers("join n0\njoin n1\njoin n2\nclose n2\nfail n0\nrejoin n0");
    // The spare's connection may come back for 500 ms.
    CHECK_FALSE(says(other.answers("rejoin n1"), "sealed"));
    CHECK(says(other.answers("advance 500ms"), "round 1 sealed with 2 nodes"));
}

TEST_CASE("a node that is through takes part in the next round if this one fails") {
    Story story("min=2 max=2 restarts=1");
    story.answers("join n0\njoin n1\nsucceed n0");
    CHECK(says(story.answers("fail n1"), "n0 n1 <- RoundEnded 0 worker_failed"));
    CHECK(says(story.answers("rejoin n0\nrejoin n1"), "round 1 sealed with 2 nodes, 1 of 1 restarts used"));
}

TEST_CASE("nothing is restarted for a late joiner once a node is through") {
    Story story("min=1 max=3 last_call=1s");
    story.answers("join n0\njoin n1\nadvance 1s\nsucceed n0");
    CHECK(says(story.answers("join n2\nadvance 5s"), "n2 <- Parked 0"));
    CHECK(says(story.answers("succeed n1"), "n0 n1 n2 <- JobEnded succeeded"));
}

TEST_CASE("several failures in one round cost one restart") {
    Story story("min=2 max=2 restarts=2");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("fail n0\nfail n1\nrejoin n0\nrejoin n1"), "1 of 2 restarts used"));
}

TEST_CASE("a member that dies while the last reports are awaited is not waited for") {
    Story story("min=2 max=2");
    story.answers("join n0\njoin n1\nfail n0");
    CHECK_FALSE(says(story.answers("report n0"), "JobEnded"));
    CHECK(says(story.answers("kill n1"), "n0 <- JobEnded failed"));
}

TEST_CASE("a worker that saved and left, or asks not to be started again, ends the job whatever the budget") {
    for (const char* code : {"76", "77"}) {
        Story story("min=2 max=2 restarts=3");
        story.answers("join n0\njoin n1");
        story.answers(std::string("fail n1 code=") + code);
        const auto answers = story.answers("rejoin n0\nrejoin n1");
        CHECK(says(answers, code == std::string("76") ? "saved and left (exit code 76)"
                                                      : "requested no restart (exit code 77)"));
        CHECK_FALSE(says(answers, "sealed"));
    }
    // After a crash they are victims as any others: the crash is what counts, also when it is heard of later.
    Story late("min=2 max=2 restarts=3");
    late.answers("join n0\njoin n1\nfail n1 code=76\nfail n0 signal=11 ago=1s\nrejoin n0");
    CHECK(says(late.answers("rejoin n1"), "round 1 sealed with 2 nodes, 1 of 3 restarts used"));
    Story crash("min=2 max=2 restarts=3");
    crash.answers("join n0\njoin n1\nfail n0 signal=11\nadvance 1s\nfail n1 code=76\nrejoin n0");
    CHECK(says(crash.answers("rejoin n1"), "round 1 sealed with 2 nodes, 1 of 3 restarts used"));
}

TEST_CASE("whose connection breaks after the daemon stood still has a lease to come back") {
    // Agents try again and again while nobody answers: the last attempt of each may be over when the daemon goes on.
    Story story("min=2 max=2 lease=5s");
    story.answers("join n0\njoin n1\nstall 8s\nclose n1");
    CHECK_FALSE(says(story.answers("advance 4s"), "lost"));
    CHECK_FALSE(says(story.answers("resume n1\nadvance 10s"), "lost"));
    CHECK(says(story.answers("close n1\nadvance 600ms"), "its connection closed and it did not reconnect"));
    story.answers("rejoin n0\nadvance 10s");

    Story gone("min=2 max=2 lease=5s");
    gone.answers("join n0\njoin n1\nstall 8s\nclose n1");
    CHECK(says(gone.answers("advance 6s"), "its connection closed and it did not reconnect"));
}

TEST_CASE("restarts in a row that bring no newer checkpoint end the job before its budget does") {
    Story story("min=1 max=1 restarts=9 stalled=2");
    story.answers("join n0");
    const auto fails_at = [&story](const char* checkpoint) {
        return story.answers(std::string("fail n0 code=1\nrejoin n0") + checkpoint);
    };
    CHECK(says(fails_at(""), "round 1 sealed"));
    CHECK(says(fails_at(" checkpoint=10"), "round 2 sealed"));  // a first checkpoint: the count begins anew
    CHECK(says(fails_at(" checkpoint=10"), "round 3 sealed"));
    CHECK(says(fails_at(" checkpoint=20"), "round 4 sealed"));
    CHECK(says(fails_at(" checkpoint=20"), "round 5 sealed"));
    const auto end = fails_at(" checkpoint=10");  // older: no progress
    CHECK(says(end, "crash loop: 2 restarts in a row without a newer checkpoint (the newest is of step 10)"));
    CHECK_FALSE(says(end, "sealed"));

    Story never("min=1 max=1 restarts=9 stalled=1");
    never.answers("join n0\nfail n0 code=1\nrejoin n0\nfail n0 code=1");
    CHECK(says(never.answers("rejoin n0"), "crash loop: 1 restart without a newer checkpoint (there is none)"));
}

TEST_CASE("workers that saved and left end the job also where one node has left before they were heard") {
    Story story("min=2 max=2 restarts=3");
    story.answers("join n0\njoin n1\nleave n0\nfail n1 code=76");
    CHECK(says(story.answers("rejoin n1"), "saved and left (exit code 76)"));
}

TEST_CASE("when a node that was through goes, the rest of its round hears whom to ask from then on") {
    Story story("min=3 max=3 lease=5s");
    story.answers("join n0\njoin n1\njoin n2\nsucceed n1");
    const auto left = story.answers("leave n1");
    CHECK(says(left, "n0 <- Peers round 0: 0 of 2"));
    CHECK(says(left, "n2 <- Peers round 0: 1 of 2 asks 0=n0"));
    Story lost("min=3 max=3 lease=5s");
    lost.answers("join n0\njoin n1\njoin n2\nsucceed n1\nsilence n1");
    CHECK(says(lost.answers("advance 8s"), "n2 <- Peers round 0: 1 of 2 asks 0=n0"));
    // Of a node that was not through the round ends.
    Story running("min=3 max=3 lease=5s");
    running.answers("join n0\njoin n1\njoin n2");
    CHECK_FALSE(says(running.answers("leave n1"), "Peers"));
}

TEST_CASE("at the end of a job nobody hears any more whom to ask") {
    Story story("min=4 max=4 lease=5s");
    story.answers("join n0\njoin n1\njoin n2\njoin n3\nsucceed n0\nsucceed n1\nsucceed n2");
    CHECK(says(story.answers("succeed n3"), "n3 <- JobEnded succeeded"));
    CHECK_FALSE(says(story.answers("ack n1\nack n0\nleave n2\nadvance 20s"), "Peers"));
}

TEST_CASE("nodes are told of a lease that is too short for so many") {
    const auto sealed = [](const char* terms) {
        Story story(terms);
        std::string joins;
        for (int i = 0; i < 51; ++i) joins += cat("join n", i, "\n");
        return story.answers(joins);
    };
    const auto short_one = sealed("min=51 max=51 lease=254ms beats=2000");
    CHECK(says(short_one, "the lease of 254 ms is short for 51 nodes: "));
    CHECK(says(short_one, "start the job with --lease 1 or more"));
    CHECK_FALSE(says(sealed("min=51 max=51 lease=255ms beats=2000"), "is short for"));
}

TEST_CASE("a round is told the pace of its heartbeats, the more nodes the slower, as far as the lease allows") {
    const auto pace = [](const char* terms) {
        Story story(terms);
        return story.answers("join n0\njoin n1\njoin n2");
    };
    CHECK_FALSE(says(pace("min=3 max=3 lease=5s"), "heartbeat"));  // 250 ms
    CHECK(says(pace("min=3 max=3 lease=2s"), ", heartbeat 100 ms"));
    CHECK(says(pace("min=3 max=3 lease=5s beats=10"), ", heartbeat 300 ms"));
    CHECK(says(pace("min=3 max=3 lease=5s beats=2"), ", heartbeat 500 ms"));
    // Who missed it is told the same again.
    Story story("min=3 max=3 lease=5s beats=10 kept");
    story.answers("join n0\njoin n1\njoin n2\nlose n1\nrestart");
    const auto again = story.answers("join n1");
    CHECK(says(again, "n1 <- Assigned round 0: group rank 1 of 3"));
    CHECK(says(again, ", heartbeat 300 ms"));
}

TEST_CASE("an agent that never acknowledges the end is waited for 10 s") {
    Story story("min=1 max=1");
    story.answers("join n0\nsucceed n0");
    CHECK_FALSE(says(story.answers("advance 9999ms"), "forgotten"));
    CHECK(says(story.answers("advance 1ms"), "forgotten: job"));
}

TEST_CASE("a job whose nodes have all left is forgotten at once") {
    Story story("min=1 max=1");
    story.answers("join n0");
    CHECK(says(story.answers("leave n0"), "forgotten: job"));
}

TEST_CASE("a full set of fresh agents need not wait out a daemon's quiet start, fewer must") {
    Story full("min=1 max=2 quiet");
    CHECK(says(full.answers("join n0\njoin n1"), "round 0 sealed"));
    Story fewer("min=1 max=2 quiet last_call=1s lease=5s");
    CHECK_FALSE(says(fewer.answers("join n0\nadvance 4999ms"), "sealed"));
    CHECK(says(fewer.answers("advance 1ms"), "round 0 sealed"));
}

TEST_CASE("a daemon that may be started again beneath its jobs waits out the lease in any case") {
    Story story("min=1 max=1 quiet_always lease=5s");
    CHECK_FALSE(says(story.answers("join n0\nadvance 4999ms"), "sealed"));
    CHECK(says(story.answers("advance 1ms"), "round 0 sealed"));
    // Once only: what this daemon sealed it knows.
    CHECK(says(story.answers("kill n0\njoin n1"), "round 1 sealed"));
}

TEST_CASE("an embedded daemon seals no round without its own node, which is never a spare") {
    Story story("min=1 max=1 quiet embedded");
    CHECK(says(story.answers("join n1"), "waiting for the node whose muster serves"));
    CHECK_FALSE(says(story.answers("advance 60s"), "sealed"));
    const auto answers = story.answers("join n0 hosts");
    CHECK(says(answers, "n0 <- Assigned round 0: group rank 0 of 1"));
    CHECK_FALSE(says(answers, "n1 <- Assigned"));
}

TEST_CASE("a node whose host was started anew takes part beside those of its round, before later comers") {
    Story story("min=1 max=2 quiet embedded");
    story.answers("join n0 hosts\njoin n1\njoin n2\nrestart\nresume n1\nclose n2\njoin n2\njoin n3 hosts");
    const auto answers = story.answers("advance 5s\nrejoin n1");
    CHECK(says(answers, "n1 <- Assigned round 1: group rank 1 of 2"));
    CHECK(says(answers, "n3 <- Assigned round 1: group rank 0 of 2"));
}

TEST_CASE("a node that was given up and still has its round blocks the seal until it has stopped its workers") {
    Story story("min=1 max=2 lease=5s");
    // Silent for 1.1 lease: the daemon takes its workers for gone.
    story.answers("join n0\njoin n1\nclose n1\nadvance 6s");
    CHECK(says(story.answers("resume n1"), "n1 <- RoundEnded 0 node_lost: n1 (pid 102) was unreachable for too long"));
    CHECK_FALSE(says(story.answers("rejoin n0\nadvance 1s"), "sealed"));
    CHECK(says(story.answers("rejoin n1"), "round 1 sealed with 2 nodes"));
}

TEST_CASE("a node that comes back with a round of before and is lost again is not to blame for the present one") {
    Story story("min=1 max=2 restarts=1 lease=5s");
    story.answers("join n0\njoin n1\nclose n1\nrejoin n0\nadvance 6s\nresume n1\nclose n1\nadvance 600ms");
    CHECK(says(story.answers("fail n0\nrejoin n0"), "round 2 sealed with 1 node, 1 of 1 restarts used"));
}

TEST_CASE("a node of a life of the job that the daemon does not know brings no restarts along") {
    Story story("min=1 max=2 restarts=2 last_call=1s");
    story.answers("join n0\njoin n1\nfail n0\nrejoin n0\nrejoin n1\nrestart\njoin n2\njoin n3");
    story.answers("resume n1\nrejoin n1\ndied n2");
    CHECK(says(story.answers("rejoin n3"), "round 2 sealed with 2 nodes, 0 of 2 restarts used"));
}

TEST_CASE("a node that is through counts once, however often it comes back to a new daemon") {
    Story story("min=2 max=2 quiet_always lease=5s");
    story.answers("join n0\njoin n1\nadvance 5s\nrestart\nresume n0 done\nclose n0\nadvance 600ms\nresume n1");
    CHECK_FALSE(says(story.answers("resume n0 done"), "succeeded"));
    CHECK(says(story.answers("succeed n1"), "succeeded: all workers exited 0"));
}

TEST_CASE("a new job under the id of a finished one goes on above the rounds that anybody remembers") {
    Story story("min=1 max=2 restarts=1");
    story.answers("join n0\njoin n1\ndied n1\nrejoin n0\nadvance 30s\nleave n0");
    // What it did in round 1 of that name must not look new.
    CHECK(says(story.answers("join n2\njoin n0"), "round 2 sealed"));
}

TEST_CASE("agents that resume different rounds end both") {
    Story story("min=1 max=4 restarts=9 last_call=1s");
    story.answers("join n0\nadvance 1s\nclose n0\nadvance 70s\njoin n1\nadvance 1s\nrestart\nresume n0");
    const auto answers = story.answers("resume n1");
    CHECK(says(answers, "daemon_restarted"));
    CHECK(says(answers, "n0 <- RoundEnded 0"));
    CHECK(says(answers, "n1 <- RoundEnded 1"));
}

TEST_CASE("text that is not UTF-8 does not break the status") {
    Story story("min=1 max=1");
    CHECK(says(story.answers("join n\xff\nshow job"), "\xef\xbf\xbd"));
}

TEST_CASE("no deadline takes effect while decisions cannot be told, and all begin anew when they are") {
    Story story("min=2 max=2 lease=5s lost=20s restarts=0");
    story.answers("join n0\njoin n1\nhold");
    CHECK_FALSE(says(story.answers("silence n1\nadvance 300s"), "ended"));
    const auto freed = story.answers("free");
    CHECK(says(freed, "this daemon could not write its state for 300 s; all leases restart"));
    CHECK_FALSE(says(freed, "ended"));
    CHECK(says(story.answers("advance 6s"), "round 0 ended: n1 (pid 102) was lost"));
}

TEST_CASE("a job whose end could not be told is known until its agents had the usual time to hear it") {
    Story story("min=1 max=1");
    story.answers("join n0\nhold\nsucceed n0");
    CHECK_FALSE(says(story.answers("advance 300s"), "forgotten"));
    CHECK_FALSE(says(story.answers("free\nadvance 9s"), "forgotten"));
    CHECK(says(story.answers("advance 2s"), "forgotten"));
}

}  // namespace muster::test
