// Dialogues about what failures cost: restarts within a window, a node its place, the job where a restart is in vain.
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {
namespace {

/// One whole round: `culprit` fails, and all of `nodes` come back.
std::string fail(Story& story, const std::string& culprit, const std::vector<std::string>& nodes) {
    auto answers = story.answers("fail " + culprit);
    for (const auto& node : nodes) answers += story.answers("rejoin " + node);
    return answers;
}

}  // namespace

TEST_CASE("a budget with a window counts the restarts within it, and no older ones") {
    Story story("min=1 max=1 restarts=2 window=10s");
    story.answers("join n0");
    CHECK(says(fail(story, "n0", {"n0"}), "round 1 sealed"));
    story.answers("advance 4s");
    CHECK(says(fail(story, "n0", {"n0"}), "round 2 sealed"));
    story.answers("advance 6s");  // the first charge is ten seconds old
    CHECK(says(fail(story, "n0", {"n0"}), "round 3 sealed with 1 node, 3 restarts used (--max-restarts 2/10s)"));
    story.answers("advance 3s");  // the second is seven seconds old, the third three
    const auto answers = fail(story, "n0", {});
    CHECK(says(answers, "n0 <- RoundEnded 3 worker_failed final"));
    CHECK(says(story.answers("report n0"),
               "no restart is left (--max-restarts 2/10s: 2 within the last 10 s, 3 in all)"));
}

TEST_CASE("a window counts from the failure, however long the nodes drain") {
    Story story("min=1 max=1 restarts=1 window=10s");
    story.answers("join n0\nfail n0\nadvance 9s\nrejoin n0");  // charged nine seconds after the failure
    story.answers("advance 1s");
    CHECK(says(story.answers("fail n0"), "n0 <- RoundEnded 1 worker_failed:"));
    CHECK(says(story.answers("rejoin n0"), "round 2 sealed"));
}

TEST_CASE("a node that says itself that it cannot go on costs no restart, also where none is left") {
    Story story("min=1 max=2 restarts=0");
    story.answers("join n0\njoin n1");
    const auto answers = story.answers("fail n1 lost");
    CHECK(says(answers, "n0 n1 <- RoundEnded 0 worker_failed:"));
    CHECK(!says(answers, "final"));
    const auto after = story.answers("leave n1\nrejoin n0\nadvance 31s");
    INFO(after);
    CHECK(says(after, "round 1 sealed with 1 node"));
    CHECK(!says(after, "JobEnded"));
}

TEST_CASE("a error that a restart would repeat ends the job at once, with the reason") {
    Story story("min=2 max=2 restarts=3");
    story.answers("join n0\njoin n1");
    CHECK(says(story.answers("fail n1 early"), "n0 n1 <- RoundEnded 0 worker_failed final"));
    const auto answers = story.answers("report n0\nreport n1");
    CHECK(says(answers,
               "n0 n1 <- JobEnded failed after 0 restarts: rank 1 on n1 failed before its first step, with an "
               "error that a restart would repeat (--restart-early-failures restarts anyway)"));
}

TEST_CASE("a checkpoint for which the disk has no room ends the job at once, with the reason") {
    Story story("min=1 max=1 restarts=3");
    story.answers("join n0\nfail n0 early full");
    CHECK(
        says(story.answers("report n0"),
             "n0 <- JobEnded failed after 0 restarts: rank 0 on n0 could not save its checkpoint on a full disk, and a "
             "restart frees no space (--restart-early-failures restarts anyway)"));
}

TEST_CASE("who asked for it gets the restart after an early failure") {
    Story story("min=1 max=1 restarts=1 restart_early");
    story.answers("join n0\nfail n0 early");
    CHECK(says(story.answers("rejoin n0"), "round 1 sealed with 1 node, 1 of 1 restarts used"));
}

TEST_CASE("an early failure that a lost node explains is not the user's") {
    Story story("min=1 max=2 restarts=1");
    story.answers("join n0\njoin n1\nsilence n1\nadvance 1s\nclose n1\nfail n0 early error=2s\nrejoin n0");
    const auto answers = story.answers("advance 6s");
    CHECK(says(answers, "round 1 sealed with 1 node"));
    CHECK_FALSE(says(answers, "JobEnded"));
}

TEST_CASE("the first failure of a node is healed in place, the second one gives its rank to the spare") {
    Story story("min=2 max=2 spares=1 restarts=5 node_failures=2 of_rounds=4");
    story.answers("join n0\njoin n1\njoin n2");
    const auto first = fail(story, "n1", {"n0", "n1"});
    CHECK(says(first, "n1 <- Assigned round 1: group rank 1 of 2"));
    const auto second = fail(story, "n1", {"n0", "n1"});
    CHECK(says(second, "n2 <- Assigned round 2: group rank 1 of 2"));
    const std::string why =
        "n1 (pid 102) is excluded: it was the first cause of the end of 2 of the last 4 rounds (--node-failures 2/4)";
    CHECK(says(second, "rank 1 on n1 failed: exit code 1] [" + why + "]"));  // on every node
    CHECK(says(story.answers("advance 1s"), "n1 <- Parked 0: " + why));
    const auto status = story.answers("show job");
    INFO(status);
    CHECK(says(status, "\"left_out\":true"));
    // The spare has its ranks now.
    CHECK(says(status, "\"connected\":true,\"host\":\"n1\""));
    CHECK(says(status, "\"place\":\"parked\",\"role\""));
    const auto died = story.answers("died n1");
    CHECK(says(died, "n1 (pid 102) died: killed by signal 9"));
    CHECK_FALSE(says(died, "it had rank"));
}

TEST_CASE("a node that is left out of the next round has no workers that others wait for") {
    Story story("min=2 max=2 spares=1 restarts=5 node_failures=1 of_rounds=4");
    story.answers("join n0\njoin n1\njoin n2\nseen n1 overdue");
    CHECK(says(story.answers("show job"), "\"overdue\":["));
    CHECK(says(fail(story, "n1", {"n0", "n1"}), "n2 <- Assigned round 1: group rank 1 of 2"));
    CHECK_FALSE(says(story.answers("show job"), "\"overdue\":["));
}

TEST_CASE("an assignment that is said again has the same notes") {
    Story story("min=2 max=2 spares=1 restarts=5 node_failures=1 of_rounds=4");
    story.answers("join n0\njoin n1\njoin n2");
    fail(story, "n1", {"n0", "n1"});
    story.answers("close n0\nlose n0");
    const auto again = story.answers("join n0");
    CHECK(says(again, "n0 <- Assigned round 1: "));
    CHECK(says(again, "[n1 (pid 102) is excluded: "));
}

TEST_CASE("a node that is left out makes the world smaller, and is not taken for a late joiner") {
    Story story("min=1 max=2 restarts=9 node_failures=2 of_rounds=3 last_call=1s");
    story.answers("join n0\njoin n1");
    fail(story, "n1", {"n0", "n1"});
    CHECK(says(fail(story, "n1", {"n0", "n1"}), "round 2 sealed with 1 node"));
    CHECK_FALSE(says(story.answers("advance 60s"), "ended"));
    // One who comes for the first time is.
    CHECK(says(story.answers("join n2"), "round 2 ended: 1 node joined"));
}

TEST_CASE("a node that is needed for the minimum takes part all the same, and every node is told") {
    Story story("min=2 max=2 restarts=9 node_failures=1 of_rounds=2");
    story.answers("join n0\njoin n1");
    const auto answers = fail(story, "n1", {"n0", "n1"});
    CHECK(says(answers, "round 1 sealed with 2 nodes"));
    CHECK(says(answers,
               "rank 1 on n1 failed: exit code 1] [n1 (pid 102) fails repeatedly, but takes part because "
               "without it there would be fewer nodes than the minimum, 2]"));
}

TEST_CASE("the failures of a node get old: after enough rounds without it, it is taken back") {
    Story story("min=1 max=2 restarts=9 node_failures=1 of_rounds=2 last_call=1s");
    story.answers("join n0\njoin n1");
    CHECK(says(fail(story, "n1", {"n0", "n1"}), "round 1 sealed with 1 node"));
    // Now both have failed in the last two rounds, and one of them is needed.
    CHECK(says(fail(story, "n0", {"n0"}), "n0 <- Assigned round 2: group rank 0 of 1"));
    // Round 0 is not among the last two any more.
    const auto answers = fail(story, "n0", {"n0"});
    CHECK(says(answers, "log: job 'job': n1 (pid 102) may take part again"));
    CHECK(says(answers, "n1 <- Assigned round 3: group rank 0 of 1"));
}

TEST_CASE("a stranger who names a high round does not make the failures of a node old") {
    Story story("min=1 max=2 restarts=9 node_failures=2 of_rounds=4 last_call=1s");
    story.answers("join n0\njoin n1");
    fail(story, "n1", {"n0", "n1"});
    story.answers("join s last_round=1000000\nleave s");
    CHECK(says(fail(story, "n0", {"n0", "n1"}), "n1 <- Assigned round 1000001: "));
    CHECK(says(fail(story, "n1", {"n0", "n1"}),
               "n1 (pid 102) is excluded: it was the first cause of the end of 2 of the last 4 rounds"));
}

TEST_CASE("victims, and nodes that were told to stop, are never left out") {
    Story story("min=1 max=2 restarts=9 node_failures=1 of_rounds=5");
    story.answers("join n0\njoin n1");
    const auto answers = story.answers("fail n1 comm\nrejoin n0\nrejoin n1");
    CHECK(says(answers, "round 1 sealed with 2 nodes"));
    CHECK_FALSE(says(answers, "left out"));
}

TEST_CASE(
    "a node that comes and goes without a newer checkpoint is a crash loop, and nodes that go one by one are not") {
    const auto lose = [](Story& story, const std::string& lost, const std::string& next) {
        return story.answers("died " + lost + "\nrejoin n0\nadvance 2s\njoin " + next +
                             "\nadvance 2s\nrejoin n0\nadvance 2s");
    };
    Story flapping("min=1 max=2 restarts=9 stalled=2 last_call=1s");
    flapping.answers("join n0\njoin n1 host=bad\nadvance 2s");
    CHECK(says(lose(flapping, "n1", "n2 host=bad"), "n2 <- Assigned"));
    CHECK(says(lose(flapping, "n2", "n3 host=bad"), "n3 <- Assigned"));
    CHECK(says(lose(flapping, "n3", "n4 host=bad"), "n4 <- Assigned"));
    const auto over = lose(flapping, "n4", "n5 host=bad");
    CHECK(says(over, "JobEnded"));
    CHECK(says(over, "crash loop: 2 restarts in a row without a newer checkpoint (there is none)"));

    Story shrinking("min=1 max=2 restarts=9 stalled=1 last_call=1s");
    shrinking.answers("join n0\njoin n1\nadvance 2s");
    for (int i = 1; i < 8; ++i) {
        const auto answers = lose(shrinking, cat("n", i), cat("n", i + 1));
        CHECK_FALSE(says(answers, "JobEnded"));
        CHECK(says(answers, cat("n", i + 1, " <- Assigned")));
    }
}

TEST_CASE("a node that is lost again and again is left out as one whose workers fail") {
    Story story("min=1 max=2 restarts=9 node_failures=2 of_rounds=5 last_call=1s");
    story.answers("join n0\njoin n1 host=bad\nadvance 2s");
    story.answers("died n1\nrejoin n0\nadvance 2s");
    CHECK(says(story.answers("join n2 host=bad\nadvance 2s\nrejoin n0\nadvance 2s"), "n2 <- Assigned"));
    story.answers("died n2\nrejoin n0\nadvance 2s");
    const auto third = story.answers("join n3 host=bad\nadvance 2s");
    CHECK(says(third, "bad (pid 104) is excluded: it was the first cause of the end of 2 of the last 5 rounds"));
    CHECK_FALSE(says(third, "n3 <- Assigned"));
}

TEST_CASE("of nodes that are lost at once none is blamed: that is their network or their power") {
    Story story("min=1 max=3 restarts=9 node_failures=1 of_rounds=5 last_call=1s lease=5s");
    story.answers("join n0\njoin n1\njoin n2\nadvance 2s\nsilence n1\nsilence n2\nadvance 7s\nrejoin n0\nadvance 2s");
    const auto back = story.answers("join n3 host=n1\njoin n4 host=n2\nadvance 3s\nrejoin n0\nadvance 3s");
    CHECK(says(back, "n3 <- Assigned"));
    CHECK(says(back, "n4 <- Assigned"));
    CHECK_FALSE(says(back, "left out"));
}

TEST_CASE("the node of an embedded daemon is never left out: no round runs without it") {
    Story story("min=1 max=2 restarts=9 node_failures=1 of_rounds=5 embedded");
    story.answers("join n0 hosts\njoin n1");
    const auto answers = story.answers("fail n0\nrejoin n0 hosts\nrejoin n1");
    CHECK(says(answers, "round 1 sealed with 2 nodes"));
    CHECK_FALSE(says(answers, "left out"));
}

TEST_CASE("agents that disagree about a budget are refused with both values") {
    Story story("min=1 max=2 restarts=10 window=3600s");
    story.answers("join n0");
    CHECK(says(story.answers("join n1 restarts=3"),
               "terms_differ: the restart budget is 10/1h at n0 (pid 101) and 3/1h at n1 (pid 102); give the same "
               "--max-restarts on every node"));
}

}  // namespace muster::test
