// Dialogues about losses that are rehearsed: whom the order reaches, who answers, and what is said of the loss.
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {

TEST_CASE("a fault on a rank goes to the node that has it, and its answer to whoever asked") {
    Story story("min=2 max=2");
    story.answers("join n0\njoin n1");
    const auto ordered = story.answers("fault n0 stop rank=1 for=2s");
    CHECK(says(ordered, "n1 <- FaultOrdered 1 round 0: muster fault stop rank 1 --for 2"));
    CHECK_FALSE(says(ordered, "CommandAnswer"));
    CHECK_FALSE(says(story.answers("carried_out n0 number=1"), "CommandAnswer"));  // not the one that was asked
    CHECK(says(story.answers("carried_out n1 number=1"), "n0 <- CommandAnswer 9 done: n1 (pid 102): said"));
    CHECK_FALSE(says(story.answers("carried_out n1 number=1"), "CommandAnswer"));  // once
    story.answers("fault n0 kill rank=1");
    CHECK(says(story.answers("carried_out n1 number=2 no"), "n0 <- CommandAnswer 9 not done: n1 (pid 102): said"));
}

TEST_CASE("a fault on a rank goes by the ranks that were given, not by who came first") {
    Story story("min=2 max=2");
    story.answers("join n0 rank=1\njoin n1 rank=0 slots=2");
    CHECK(says(story.answers("fault n0 kill rank=1"), "n1 <- FaultOrdered 1 round 0"));
    CHECK(says(story.answers("fault n0 kill rank=2"), "n0 <- FaultOrdered 2 round 0"));
}

TEST_CASE("the loss of an agent that a fault was aimed at says so, until that fault is over") {
    Story story("min=1 max=3 lease=5s last_call=1s");
    story.answers("join n0\njoin n1\njoin n2");
    story.answers("fault n0 kill node=n1\ncarried_out n1 number=1");
    CHECK(says(story.answers("died n1"), "injected by muster fault kill node"));
    story.answers("rejoin n0\nrejoin n2\nadvance 2s\nfault n0 stop node=n2 for=1s\ncarried_out n2 number=2");
    story.answers("advance 12s");
    CHECK_FALSE(says(story.answers("died n2"), "injected"));
}

TEST_CASE("a stop for good explains the loss that it brought, and no later one") {
    Story story("min=1 max=2 lease=5s lost=20s");
    story.answers("join n0\njoin n1\nfault n0 stop node=n1\ncarried_out n1 number=1\nsilence n1");
    CHECK(says(story.answers("advance 6s"), "injected by muster fault stop node"));
    Story woken("min=1 max=2 lease=5s lost=20s");
    woken.answers("join n0\njoin n1\nfault n0 stop node=n1\ncarried_out n1 number=1\nadvance 40s");
    const auto later = woken.answers("died n1");
    CHECK(says(later, "n1 (pid 102) was lost"));
    CHECK_FALSE(says(later, "injected"));
}

TEST_CASE("a fault for what does not exist is answered with what does") {
    Story story("min=2 max=2");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("fault n0 kill rank=2"), "not done: the job's round 0 has no rank 2; it has 0 to 1"));
    CHECK(says(story.answers("fault n0 kill node=gpu99"), "has no node 'gpu99'; it has n0:101, n1:102"));
    CHECK(says(story.answers("fault n0 partition rank=1 for=1s"), "not done: only a node can be cut off"));
    story.answers("close n1");
    CHECK(says(story.answers("fault n0 kill node=n1"), "not done: n1 (pid 102) is not connected at the moment"));
    CHECK(says(story.answers("fail n0\nfault n0 kill rank=0"), "not done: no round of the job is running"));
}

TEST_CASE("a daemon suffers a fault only where it was started so") {
    Story story("min=1 max=1");
    story.answers("join n0");
    CHECK(says(story.answers("fault n0 kill daemon"),
               "not done: refused: this daemon was started without --allow-faults"));
    Story willing("min=1 max=1 allow_faults");
    willing.answers("join n0");
    const auto suffered = willing.answers("fault n0 kill daemon");
    CHECK(says(suffered, "the daemon suffers muster fault kill daemon"));
    CHECK(suffered.find("CommandAnswer 9 done") != std::string::npos);
}

TEST_CASE("a new agent on a host that failed again and again has that host's past") {
    Story story("min=1 max=2 spares=1 restarts=9 node_failures=2 of_rounds=5 last_call=1s");
    story.answers("join n0\njoin n1 host=bad\nadvance 2s");
    story.answers("fail n1 signal=9 ago=1ms\nrejoin n0\nrejoin n1\nadvance 2s");
    story.answers("died n1\nrejoin n0\nadvance 2s");
    // Its first failure is remembered for the next agent there, whose second one it is.
    story.answers("join n2 host=bad\nadvance 2s\nrejoin n0\nadvance 2s");
    const auto failed = story.answers("fail n2 signal=9 ago=1ms\nrejoin n0\nrejoin n2\nadvance 2s");
    CHECK(says(failed, "bad (pid 103) is excluded: it was the first cause of the end of 2 of the last 5 rounds"));
    // And so it is for an agent that comes before the last one there is known to be gone.
    story.answers("join n3 host=bad\ndied n2");
    CHECK(says(story.answers("rejoin n0\nadvance 2s"), "n3 <- Parked"));
}

}  // namespace muster::test
