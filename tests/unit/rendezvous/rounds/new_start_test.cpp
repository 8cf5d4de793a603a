// Dialogues with agents that are started under the name of a job that has run before, and with a stray one that comes
// before the job's own.
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {
TEST_CASE("a job whose agents are all gone is begun anew with other terms, once none of them can run any more") {
    Story story("min=2 max=2 kept lost=60s");
    story.answers("join n0\njoin n1\nrestart 3600s");
    const auto held = story.answers("join n2 restarts=5");
    CHECK_FALSE(says(held, "Refused"));
    CHECK(says(held,
               "n2 <- Gathering 0 of 2..2; waiting for the lost agents of this job's earlier run to be confirmed "
               "gone, at most 65.5 s; the restart budget is 0 at n0 (pid 101) and 5 at this node"));
    CHECK_FALSE(says(story.answers("join n3 restarts=5\nadvance 59s"), "Assigned"));
    const auto begun = story.answers("advance 8s");
    CHECK(says(begun, "log: job 'job': the agents of its earlier run are gone; n2 (pid 103) starts it again"));
    // Numbers only grow; the budget is the new run's.
    CHECK(says(begun, "round 1 sealed with 2 nodes, 0 of 5 restarts used"));
    CHECK_FALSE(says(begun, "Refused"));
}

TEST_CASE("other terms are refused as soon as an agent of the job is heard") {
    Story story("min=2 max=2 kept");
    story.answers("join n0\njoin n1\nrestart");
    CHECK_FALSE(says(story.answers("join n2 restarts=5\nadvance 4s"), "Refused"));
    const auto back = story.answers("resume n1");
    CHECK(says(back, "n2 <- Refused terms_differ"));
    CHECK(says(back, "close n2"));
    CHECK(says(story.answers("join n3 restarts=5"), "n3 <- Refused terms_differ"));
    CHECK_FALSE(says(story.answers("resume n0\nadvance 60s"), "ended"));
}

TEST_CASE("another program's job begins under the name of one whose agents are silent, when they are gone") {
    Story story("min=1 max=1 kept");
    story.answers("join n0 entry=a.py\nrestart");
    CHECK(says(story.answers("join n1 entry=b.py"), "it ran another program"));
    CHECK(says(story.answers("advance 70s"), "n1 (pid 102) starts it again"));
}

TEST_CASE("other terms are taken at once where the guardians have said that all agents are dead") {
    Story story("min=1 max=1");
    story.answers("join n0\nkill n0");
    const auto answers = story.answers("join n1 restarts=5");
    CHECK(says(answers, "n1 (pid 102) starts it again"));
    CHECK(says(answers, "round 1 sealed with 1 node, 0 of 5 restarts used"));
    // The same job started again goes on with its budget, as ever.
    Story again("min=1 max=1 restarts=3");
    again.answers("join n0\nfail n0\nrejoin n0\nkill n0");
    CHECK(says(again.answers("join n1"), "round 2 sealed with 1 node, 1 of 3 restarts used"));
}

TEST_CASE("whoever waits to begin the job anew and goes is not waited for") {
    Story story("min=1 max=1 kept");
    story.answers("join n0\nrestart\njoin n1 restarts=5\nclose n1");
    CHECK_FALSE(says(story.answers("advance 70s"), "starts it again"));
}

TEST_CASE("whoever waits to begin the job anew waits once, on its newest connection, and no twin waits beside it") {
    Story story("min=1 max=1 kept");
    story.answers("join n0\nrestart\njoin n1 restarts=5");
    const auto twin = story.answers("twin n1");
    CHECK(says(twin, "Refused duplicate"));
    const auto again = story.answers("reconnect n1\njoin n1 restarts=5");
    CHECK(says(again, "replaced by a newer connection"));
    CHECK(says(again, "n1 <- Gathering"));
    CHECK_FALSE(says(story.answers("close n1\nadvance 70s"), "starts it again"));
}

TEST_CASE("a new start on a host that has heard the end does not get the old verdict") {
    Story story("min=1 max=2 last_call=1s");
    story.answers("join n0\nadvance 1s\nfail n0\nreport n0");
    story.answers("ack n0\nclose n0\nadvance 1s");
    const auto answers = story.answers("join m0 host=n0\nadvance 1s");
    CHECK_FALSE(says(answers, "JobEnded"));
    CHECK(says(answers, "n0 (pid 102) starts it again"));
    CHECK(says(answers, "round 1 sealed with 1 node, 0 of 0 restarts used"));
}

TEST_CASE("nodes of a new start that come before that host's agent belong to it") {
    Story story("min=1 max=3 last_call=1s");
    story.answers("join n0\njoin n1\nadvance 1s\nsucceed n0\nsucceed n1\nack n0\nclose n0");
    CHECK_FALSE(says(story.answers("join m2"), "JobEnded"));
    // One of the former run has not acknowledged the end yet.
    CHECK_FALSE(says(story.answers("join m0 host=n0"), "starts it again"));
    const auto begun = story.answers("ack n1\nadvance 1s");
    CHECK(says(begun, "starts it again"));
    CHECK(says(begun, "round 1 sealed with 2 nodes"));
    CHECK_FALSE(says(begun, "JobEnded"));
}

TEST_CASE("a node that was cut off at the end hears of it as long as it looks for the daemon, and runs nothing again") {
    for (const auto* passes : {"advance 50s", "restart 50s\nadvance 1s"}) {
        INFO(passes);
        Story story("min=2 max=2 lost=60s kept");
        story.answers("join n0\njoin n1\nfail n0\nreport n0\nreport n1\nack n0\nclose n0\nclose n1");
        story.answers(passes);
        CHECK(says(story.answers("resume n1"), "n1 <- JobEnded failed"));
        CHECK(says(story.answers("ack n1\nadvance 1s"), "state: the job is deleted"));
    }
    Story story("min=2 max=2 lost=60s kept");
    story.answers("join n0\njoin n1\nfail n0\nreport n0\nreport n1\nack n0\nclose n0\nclose n1");
    CHECK(says(story.answers("advance 11s"), "forgotten: job"));
    CHECK(says(story.answers("advance 50s"), "state: the job is deleted"));
    // Whoever starts it again does not wait for it beyond the linger.
    Story anew("min=2 max=2 lost=60s");
    anew.answers("join n0\njoin n1\nfail n0\nreport n0\nreport n1\nack n0\nclose n0\nclose n1\nadvance 11s");
    CHECK(says(anew.answers("join m0 host=n0"), "starts it again"));
}

TEST_CASE("an end that was kept long ago is told to nobody who starts the job again") {
    Story story("min=1 max=1 kept");
    story.answers("join n0\nfail n0\nreport n0");
    const auto answers = story.answers("restart 3600s\njoin m0 host=n0");
    CHECK_FALSE(says(answers, "JobEnded"));
    CHECK(says(answers, "round 1 sealed with 1 node"));
    // It is news within the linger, also to the agents of the next daemon.
    Story soon("min=1 max=1 kept");
    soon.answers("join n0\nfail n0\nreport n0");
    CHECK(says(soon.answers("restart 2s\nresume n0"), "n0 <- JobEnded failed"));
    // Nobody began it anew, so it goes without a word to its launcher.
    Story alone("min=1 max=1 kept");
    alone.answers("join n0\nfail n0\nreport n0\nrestart 3600s");
    const auto gone = alone.answers("advance 1s");
    CHECK(says(gone, "state: the job is deleted"));
    CHECK_FALSE(says(gone, "forgotten: job"));
}

TEST_CASE("a stray agent that a new daemon hears first gives way to two of the job's own") {
    Story story("min=2 max=2 quiet_always");
    story.answers("join n0\njoin n1\nadvance 6s\nrestart");
    CHECK(says(story.answers("join n9 restarts=5"), "n9 <- Gathering 1 of 2"));
    const auto one = story.answers("resume n0");
    CHECK_FALSE(says(one, "Refused"));
    const auto two = story.answers("resume n1");
    CHECK(says(two, "n9 <- Refused terms_differ"));
    CHECK_FALSE(says(two, "n0 <- Refused"));
    CHECK(says(two, "round 0 continues, as reported by n1"));
    CHECK_FALSE(says(story.answers("resume n0\nadvance 60s"), "ended"));
}

// Each line of a story also checks that the index of ranks says the same as the members.
TEST_CASE("the holder of a static rank is known after a replaced job, a return, a departure and a death") {
    Story story("min=2 max=2 quiet_always fixed");
    story.answers(
        "join n0 rank=0\njoin n1 rank=1\nadvance 6s\nrestart\njoin n9 rank=0 restarts=5\nresume n0\nresume n1");
    // With its terms n9 is gone, too.
    CHECK_FALSE(says(story.answers("resume n0"), "Refused"));
    CHECK(says(story.answers("join n2 rank=0"), "n2 <- Refused duplicate: --node-rank 0 is held by n0"));
    CHECK(says(story.answers("reconnect n1\njoin n3 rank=1"), "n3 <- Refused duplicate: --node-rank 1 is held by n1"));
    CHECK_FALSE(says(story.answers("close n0\njoin n4 rank=0"), "Refused"));
    CHECK(says(story.answers("join n5 rank=0"), "n5 <- Refused duplicate: --node-rank 0 is held by n4"));
    CHECK(says(story.answers("leave n4\nresume n0\njoin n6 rank=0"),
               "n6 <- Refused duplicate: --node-rank 0 is held by n0"));
    CHECK_FALSE(says(story.answers("kill n0\njoin n7 rank=0"), "Refused"));
}

TEST_CASE("one agent that says that it has been in a round does not replace the terms of those who wait") {
    for (const auto* claim : {"join s restarts=5 last_round=0", "join s restarts=5\nresume s round=0 of=2 group=0"}) {
        INFO(claim);
        Story story("min=2 max=2 quiet_always lease=5s");
        story.answers("join n0");
        CHECK_FALSE(says(story.answers(claim), "n0 <- Refused"));
        const auto later = story.answers("join n1\nadvance 60s");
        CHECK(says(later, "round 1 sealed with 2 nodes"));
        CHECK_FALSE(says(later, "n1 <- Refused"));
        CHECK_FALSE(says(later, "s <- Assigned"));
    }
}

TEST_CASE("no round is sealed beside one that an agent with other terms may still run") {
    Story story("min=1 max=1 quiet_always lease=5s lost=20s");
    CHECK(says(story.answers("join n0\nadvance 6s"), "round 0 sealed"));
    story.answers("restart\nadvance 1s\njoin n9 restarts=5");
    CHECK_FALSE(says(story.answers("resume n0\nadvance 5100ms"), "sealed"));
    // Asked again, it is refused, and stops its workers within its 30 s.
    CHECK(says(story.answers("resume n0"), "n0 <- Refused terms_differ"));
    CHECK_FALSE(says(story.answers("advance 34s"), "sealed"));
    CHECK(says(story.answers("advance 2s"), "round 1 sealed with 1 node"));
}

TEST_CASE("an agent with other terms has its time to stop its workers from its refusal on, however late that is") {
    // Away when the hold was over, or not heard by a daemon that stood still.
    for (const auto* passes : {"close n0\nadvance 24s", "stall 60s"}) {
        INFO(passes);
        Story story("min=1 max=1 quiet_always lease=5s lost=20s");
        story.answers("join n0\nadvance 6s\nrestart\nadvance 1s\njoin n9 restarts=5\nresume n0");
        CHECK_FALSE(says(story.answers(passes), "sealed"));
        CHECK(says(story.answers("resume n0"), "n0 <- Refused terms_differ"));
        CHECK_FALSE(says(story.answers("advance 34s"), "sealed"));
        CHECK(says(story.answers("advance 40s"), "round 1 sealed with 1 node"));
    }
}

TEST_CASE("a claim made while decisions are held back waits longer from then on, and not from the hold's start") {
    Story story("min=1 max=1 quiet_always lease=5s lost=20s");
    story.answers("join n0\nadvance 6s\nrestart\nadvance 1s\njoin n9 restarts=5\nhold\nadvance 10s");
    story.answers("resume n0\nadvance 10s\nfree");
    CHECK_FALSE(says(story.answers("advance 39s"), "sealed"));
    CHECK(says(story.answers("advance 2s"), "round 1 sealed with 1 node"));
}

TEST_CASE("an agent refused for something else than its terms has its time to stop, with the secret all of it") {
    for (const bool is_proven : {true, false}) {
        INFO(is_proven);
        Story story("min=1 max=1 quiet_always lease=5s lost=60s");
        story.answers(is_proven ? "join n0 entry=a.py proven" : "join n0 entry=a.py");
        story.answers("advance 6s\nrestart\nadvance 1s\njoin n9 entry=b.py");
        CHECK(says(story.answers("resume n0 grace=300s"), "n0 <- Refused job_in_use"));
        CHECK_FALSE(says(story.answers(is_proven ? "advance 304s" : "advance 64s"), "sealed"));
        CHECK(says(story.answers("advance 2s"), "sealed with 1 node"));
    }
}

TEST_CASE("no round is sealed beside a refused agent's either when the one goes that set the terms") {
    for (const auto* goes : {"leave n9", "kill n9"}) {
        INFO(goes);
        Story story("min=1 max=1 quiet_always lease=5s lost=20s");
        story.answers("join n0\nadvance 6s\nrestart\nadvance 1s\njoin n9 restarts=5\nresume n0\nadvance 6s");
        CHECK(says(story.answers("resume n0"), "n0 <- Refused terms_differ"));
        story.answers(goes);
        CHECK_FALSE(says(story.answers("join n10 restarts=5\njoin n11\nadvance 34s"), "sealed"));
        CHECK(says(story.answers("advance 2s"), "round 1 sealed with 1 node"));
    }
}

TEST_CASE(
    "an agent is told that it waits for the workers of one that was refused, also where the job has nobody else") {
    Story story("min=1 max=1 quiet_always lease=5s lost=20s");
    story.answers(
        "join n0\nadvance 6s\nrestart\nadvance 1s\njoin n9 restarts=5\nresume n0\nadvance 6s\nresume n0\nleave n9");
    const auto answers = story.answers("join n11");
    CHECK(says(answers, "n11 <- Gathering"));
    CHECK(says(answers, "the workers of this job's refused agents to stop, at most 3"));
    CHECK_FALSE(says(story.answers("advance 34s"), "sealed"));
    CHECK(says(story.answers("advance 2s"), "round 1 sealed with 1 node"));
}

TEST_CASE("an agent with other terms goes on with its round when the one goes that set the job's") {
    for (const bool is_held : {true, false}) {
        INFO(is_held);
        Story story("min=1 max=1 quiet_always lease=5s lost=20s");
        story.answers("join n0\nadvance 6s\nrestart\nadvance 1s\njoin n9 restarts=5\nresume n0");
        if (!is_held) story.answers("advance 6s");
        CHECK(says(story.answers("leave n9"), "close n0: its terms were in doubt") == is_held);
        CHECK(says(story.answers("resume n0"), "round 0 continues"));
    }
}

TEST_CASE("a claim that was refused costs the time to stop its workers, not its agent's lost timeout") {
    Story story("min=1 max=1 quiet_always lease=5s lost=3600s");
    story.answers("join n0\nadvance 6s\nrestart\nadvance 1s\njoin n9 restarts=5\nresume n0");
    CHECK_FALSE(says(story.answers("advance 30s"), "sealed"));
    CHECK(says(story.answers("advance 15s"), "round 1 sealed with 1 node"));
}

TEST_CASE("a job that had no member for a while is not one whose daemon stood still") {
    Story story("min=1 max=1 quiet_always lease=5s lost=60s");
    story.answers("join n0\nadvance 6s\nrestart\nadvance 1s\njoin n9 restarts=5\nresume n0\nadvance 6s");
    CHECK(says(story.answers("resume n0"), "n0 <- Refused terms_differ"));
    CHECK_FALSE(says(story.answers("leave n9\nadvance 30s\njoin n10 restarts=5"), "sealed"));
    CHECK(says(story.answers("advance 10s"), "round 1 sealed with 1 node"));
}

TEST_CASE("a stranger that repeats its Resume holds back the first seal by two lost timeouts and four leases at most") {
    Story story("min=2 max=2 quiet_always lease=5s lost=60s");
    story.answers("join n0\nadvance 69s\njoin n1 restarts=5");
    for (int second = 69; second < 138; ++second) {
        INFO(second);
        CHECK_FALSE(says(story.answers("resume n1 round=0 of=1 group=0 grace=3600s\nadvance 1s"), "sealed"));
        if (second == 69) story.answers("join n2");
    }
    const auto answers = story.answers("resume n1\nadvance 1s\nresume n1\nadvance 1s");
    CHECK(says(answers, "round 1 sealed with 2 nodes"));
}

TEST_CASE("a round is numbered above those of an agent that waited until its terms were known, also when it has gone") {
    for (const auto* claim : {"join s restarts=5 last_round=7", "join s restarts=5\nresume s round=7 of=2 group=0"})
        for (const auto* goes : {"", "close s", "leave s", "died s"}) {
            INFO(claim << ", " << goes);
            Story story("min=2 max=2 quiet_always lease=5s");
            story.answers("join n0");
            story.answers(claim);
            story.answers(goes);
            CHECK(says(story.answers("join n1\nadvance 60s"), "round 8 sealed with 2 nodes"));
        }
}

TEST_CASE("a stray agent with the job's terms that a new daemon hears first is parked") {
    Story story("min=2 max=2 quiet_always");
    story.answers("join n0\njoin n1\nadvance 6s\nrestart\njoin n9\nresume n0\nresume n1");
    CHECK_FALSE(says(story.answers("advance 60s"), "ended"));
}

TEST_CASE("survivors that wait for the next round know the terms better than a stray agent") {
    Story story("min=2 max=2 quiet_always restarts=3");
    story.answers("join n0\njoin n1\nadvance 6s\nfail n0\nreport n0\nreport n1\nrestart\njoin n9 restarts=5");
    CHECK_FALSE(says(story.answers("join n0"), "Refused"));
    const auto both = story.answers("join n1");
    CHECK(says(both, "n9 <- Refused terms_differ"));
    CHECK_FALSE(says(both, "n0 <- Refused"));
    CHECK(says(story.answers("advance 6s"), "round 1 sealed with 2 nodes"));
}

}  // namespace muster::test
