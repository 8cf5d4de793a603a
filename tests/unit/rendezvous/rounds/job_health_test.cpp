// Nodes that their own health check found sick, and how many of them may park for one finding.
#include "rendezvous/rounds/ledgers/health_breaker.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {

using rendezvous::finding_key;
using rendezvous::parked_max;

TEST_CASE("one node may always park for a finding, and never more than a twentieth") {
    CHECK(parked_max(1) == 1);
    CHECK(parked_max(39) == 1);
    CHECK(parked_max(40) == 2);
    CHECK(parked_max(20'000) == 1'000);
}

TEST_CASE("two nodes have the same finding but for numbers and their names") {
    CHECK(finding_key("10-nhc: gpu07: GPU 3 is lost", "gpu07") ==
          finding_key("10-nhc: rack-b: GPU 5 is lost", "rack-b"));
    CHECK(finding_key("10-nhc: GPU 3 is lost", "a1") != finding_key("10-nhc: /dev/shm is full", "a2"));
    CHECK(finding_key("x", "") == "x");
}

TEST_CASE("a sick node parks, a spare takes its place, and no restart is charged") {
    Story story("min=2 max=2 spares=1 restarts=1");
    story.answers("join n0\njoin n1 sick=hot");
    const auto sealed = story.answers("join n2\nadvance 2s");
    CHECK(says(sealed, "round 0 sealed with 2 nodes, 0 of 1 restarts used"));
    CHECK(says(sealed, "n1 <- Parked 0"));
    CHECK(says(sealed, "n1 (pid 102) is parked until its health check passes: hot"));
    CHECK(!says(sealed, "n1 <- Assigned"));

    // It falls sick between rounds: charged is only what had failed.
    Story later("min=2 max=2 spares=1 restarts=2");
    later.answers("join n0\njoin n1\njoin n2\nfail n1\nrejoin n0");
    const auto second = later.answers("rejoin n1 sick=hot");
    INFO(second);
    CHECK(says(second, "round 1 sealed with 2 nodes, 1 of 2 restarts used"));
    CHECK(says(second, "n2 (pid 103) replaces n1 (pid 102) as group rank 1"));
}

TEST_CASE("a node whose check passes again is a spare, or takes part where nodes are missing") {
    Story story("min=2 max=2 spares=1 restarts=1");
    story.answers("join n0\njoin n1 sick=hot\njoin n2");
    const auto healed = story.answers("join n1");
    CHECK(says(healed, "n1 (pid 102) may take part again: its health check passes"));
    CHECK(says(story.answers("died n2\nrejoin n0\nadvance 10s"), "round 1 sealed with 2 nodes"));

    Story waits("min=2 max=2 restarts=1");
    const auto parked = waits.answers("join n0\njoin n1 sick=hot\nadvance 60s");
    CHECK(!says(parked, "sealed"));
    CHECK(says(parked, "1 more node; n1 (pid 102) is parked until its health check passes: hot"));
    CHECK(says(waits.answers("join n1"), "round 0 sealed with 2 nodes"));
}

TEST_CASE("a check that is broken everywhere parks one node of a few, and empties no job") {
    Story story("min=1 max=4 restarts=1");
    story.answers("join n0 sick=broken1\njoin n1 sick=broken2\njoin n2 sick=broken3");
    const auto sealed = story.answers("join n3 sick=broken4\nadvance 31s");
    INFO(sealed);
    CHECK(says(sealed, "round 0 sealed with 3 nodes"));
    CHECK(says(sealed,
               "goes on although its health check failed, because more nodes report the same than may park for it"));

    // All of them are needed, so that the one that is parked takes part as well.
    Story all("min=3 max=3 restarts=1");
    all.answers("join n0 sick=broken\njoin n1 sick=broken");
    CHECK(says(all.answers("join n2 sick=broken"), "round 0 sealed with 3 nodes"));
    // Two findings are two reasons.
    Story two("min=1 max=3 restarts=1");
    CHECK(says(two.answers("join n0\njoin n1 sick=hot\njoin n2 sick=full\nadvance 31s"), "round 0 sealed with 1 node"));
}

TEST_CASE("a node that goes on in spite of its finding is a spare, and is not said to be parked for it") {
    Story story("min=1 max=1 restarts=1");
    const auto sealed = story.answers("join n0\njoin n1 sick=broken\njoin n2 sick=broken\nadvance 5s");
    INFO(sealed);
    CHECK(says(sealed, "n1 (pid 102) is parked until its health check passes"));
    CHECK(says(sealed, "n2 <- Parked"));
    CHECK(!says(sealed, "n2 (pid 103) is parked until its health check passes"));
}

TEST_CASE("a Join that crossed its assignment does not say that the round's workers have ended") {
    Story story("min=2 max=2 restarts=3");
    // n1 has not read its assignment yet, and joins again because its finding has changed.
    story.answers("join n0\njoin n1\ndied n0\njoin n1 sick=hot last_round=-1");
    const auto second = story.answers("join n2\njoin n3");
    INFO(second);
    CHECK(!says(second, "round 1 sealed"));
    CHECK(says(story.answers("rejoin n1 last_round=0"), "round 1 sealed with 2 nodes"));

    // On a new connection no assignment is on its way.
    Story anew("min=2 max=2 restarts=3");
    anew.answers("join n0\njoin n1\ndied n0\nreconnect n1\njoin n1 last_round=-1");
    CHECK(says(anew.answers("join n2"), "round 1 sealed"));
}

TEST_CASE("a check that is broken on all nodes costs each round one note") {
    Story story("min=1 max=100 restarts=1");
    std::string lines;
    for (int i = 0; i < 100; ++i) lines += muster::cat("join n", i, " sick=broken", i, " version=torch-", i % 2, "\n");
    story.answers(lines + "advance 31s");
    const auto notes = story.answers("show notes");
    INFO(notes);
    CHECK(std::ranges::count(notes, '\n') <= 4);  // the first one is empty
    CHECK(says(notes, " and 91 more go on although their health check failed"));
    CHECK(says(notes, "versions of muster differ"));
}

TEST_CASE("of more than eight findings the rest is a number") {
    Story story("min=1 max=60 restarts=1");
    std::string lines = "join n1\n";
    for (int i = 0; i < 11; ++i) {
        const auto kind = static_cast<char>('a' + i);
        lines += muster::cat("join n", 2 + i, " sick=", kind, kind, "\n");
    }
    story.answers(lines + "advance 31s");
    const auto notes = story.answers("show notes");
    INFO(notes);
    CHECK(says(notes, "is parked until its health check passes: hh"));
    CHECK(!says(notes, "health check passes: ii"));
    CHECK(says(notes, "health checks found 3 more things on nodes of this job; see `muster status`"));
}

TEST_CASE("a node whose check finds something else counts for that, and no longer for what it found before") {
    Story story("min=1 max=4 restarts=1");
    story.answers("join n0\njoin n1 sick=hot\njoin n1 sick=full");
    CHECK(says(story.answers("join n2 sick=hot"), "n2 (pid 103) is parked until its health check passes: hot"));
    CHECK(says(story.answers("join n3 sick=full"), "n3 (pid 104) goes on although its health check failed"));
}

TEST_CASE("a gathering whose nodes are away for a moment waits for no last call when they are back") {
    Story story("min=3 max=4 restarts=1");
    story.answers("join n0\njoin n1\njoin n2\nadvance 31s\nfail n0\nrejoin n0\nrejoin n1\nclose n1\nrejoin n2");
    const auto back = story.answers("reconnect n1\njoin n1 last_round=0");
    INFO(back);
    CHECK(says(back, "round 1 sealed with 3 nodes"));
}

TEST_CASE("the finding of the node that hosts the rendezvous counts, but the node goes on") {
    for (const auto* order :
         {"join n0 hosts sick=broken\njoin n1 sick=broken", "join n1 sick=broken\njoin n0 hosts sick=broken"}) {
        Story story("min=2 max=2 restarts=1 embedded");
        const auto sealed = story.answers(order);
        INFO(sealed);
        CHECK(says(sealed, "round 0 sealed with 2 nodes"));
    }
}

TEST_CASE("what is parked is still parked after a restart of the daemon") {
    Story story("min=1 max=3 restarts=1 kept");
    story.answers("join n0\njoin n1 sick=hot\nadvance 31s\nrestart\nresume n0\nadvance 10s");
    const auto again = story.answers("join n1 sick=hot");
    CHECK(!says(again, "sealed"));
    CHECK(says(story.answers("fail n0\nrejoin n0\nadvance 60s"), "round 1 sealed with 1 node"));
}

}  // namespace muster::test
