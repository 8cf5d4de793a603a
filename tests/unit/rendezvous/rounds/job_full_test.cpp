// Dialogues with nodes that launch something else than the job whose id they share.
#include "rendezvous/rounds/ledgers/launched.h"
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {

namespace {

const std::string refusal =
    "n9 <- Refused job_full: job 'job' is full and runs other arguments: `a.py --lr=1` at n0 (pid 101), and `a.py "
    "--lr=2` at n9 (pid 10";
const std::string advice = "); if this is another job, give it its own --rdzv-id or port";

/// A job of two nodes that runs.
const std::string two_run = "join n0 entry=a.py arguments=--lr=1\njoin n1 entry=a.py arguments=--lr=1\nadvance 6s\n";
const std::string other = "join n9 entry=a.py arguments=--lr=2\nadvance 1s\n";

}  // namespace

TEST_CASE("a node of another job that comes to a full one is refused, and the round goes on") {
    Story story("min=2 max=2");
    story.answers(two_run);
    const auto refused = story.answers(other);
    CHECK(says(refused, refusal + "3" + advice));
    CHECK(says(refused, "log: n9 (pid 103) is refused: job 'job' is full"));
    CHECK(says(refused, "close n9: refused"));
    CHECK_FALSE(says(refused, "Parked"));
    CHECK_FALSE(says(story.answers("advance 60s"), "ended"));
    // The same program with the same arguments stands by, as ever.
    CHECK(says(story.answers("join n2 entry=a.py arguments=--lr=1\nadvance 1s"), "n2 <- Parked 0"));
}

TEST_CASE("a surplus node is not refused where the number of nodes is elastic, or spares were asked for") {
    Story elastic("min=1 max=2");
    elastic.answers(two_run);
    CHECK(says(elastic.answers(other), "n9 <- Parked 0"));
    Story spares("min=2 max=2 spares=1 last_call=1s");
    spares.answers(two_run);
    CHECK(says(spares.answers(other), "n9 <- Parked 0"));
}

TEST_CASE("a script may take its node's number: differences are told to all nodes, and the next agent of one parks") {
    Story story("min=2 max=2");
    const auto sealed = story.answers("join n0 entry=a.py arguments=--id=0\njoin n1 entry=a.py arguments=--id=1");
    const std::string note =
        "[nodes of this round run different arguments: `a.py --id=0` on n0; `a.py --id=1` on n1; if these are two "
        "jobs, give each its own --rdzv-id or port]";
    CHECK(says(sealed, "group rank 0 of 2, rank 0 of 2, role rank 0 of 2, restarts 0, store n0.net:5001 " + note));
    CHECK(says(sealed, "group rank 1 of 2, rank 1 of 2, role rank 1 of 2, restarts 0, store n0.net:5001 " + note));
    // A power failure: the daemon still believes the former agent to be there.
    CHECK(says(story.answers("silence n1\njoin m1 host=n1 entry=a.py arguments=--id=1\nadvance 1s"), "m1 <- Parked 0"));
}

TEST_CASE("roles have programs of their own, and a third kind of arguments is only counted") {
    Story roles("min=2 max=2");
    CHECK_FALSE(says(roles.answers("join n0 arguments=1 role=a\njoin n1 arguments=2 role=b"), "different arguments"));
    Story three("min=3 max=3");
    CHECK(
        says(three.answers("join n0 arguments=1\njoin n1 arguments=2\njoin n2 arguments=3"), "on n1; and 1 more; if"));
}

TEST_CASE("a node that was in the job parks with whatever it has") {
    // The same agent, whose place was taken.
    Story story("min=2 max=2");
    story.answers(two_run + "kill n1\njoin n2 entry=a.py arguments=--lr=1\nrejoin n0");
    CHECK(says(story.answers("join n3 host=n1 entry=a.py arguments=--lr=3\nadvance 1s"), "n3 <- Parked 0"));
    // A second agent of a host, beside a live one, is nobody's successor.
    CHECK(says(story.answers("join n4 host=n1 entry=a.py arguments=--lr=4\nadvance 1s"), "n4 <- Refused job_full"));
    // What the daemon has kept, it knows after a restart.
    Story kept("min=2 max=2 kept");
    kept.answers(two_run + "kill n1\njoin n2 entry=a.py arguments=--lr=1\nrejoin n0\nrestart\nresume n0\nresume n2");
    CHECK(says(kept.answers("join n3 host=n1 entry=a.py arguments=--lr=3\nadvance 1s"), "n3 <- Parked 0"));
    CHECK(says(kept.answers("join n4 entry=a.py arguments=--lr=4\nadvance 1s"), "n4 <- Refused job_full"));
}

TEST_CASE(
    "a daemon that is started again refuses as before, from its state at once, and else when it has been taught") {
    Story kept("min=2 max=2 kept");
    kept.answers(two_run + "restart");
    CHECK(says(kept.answers(other), refusal + "3" + advice));
    Story taught("min=2 max=2 quiet_always");
    taught.answers(two_run + "restart");
    CHECK_FALSE(says(taught.answers(other), "Refused"));
    // The node that is still to come back may be the newcomer's former agent.
    CHECK_FALSE(says(taught.answers("resume n0\nadvance 1s"), "Refused"));
    CHECK(says(taught.answers("resume n1\nadvance 1s"), refusal + "3" + advice));
}

TEST_CASE("a node takes a lost one's place, with whatever it runs") {
    Story story("min=2 max=2");
    story.answers(two_run + "kill n1");
    const auto answers = story.answers(other + "rejoin n0");
    CHECK_FALSE(says(answers, "Refused"));
    CHECK(says(answers, "n9 <- Assigned round 1"));
    CHECK(says(answers, "different arguments"));
}

TEST_CASE("a node of another job that comes after the end is refused, and no late one of the same job") {
    Story story("min=2 max=2");
    story.answers(two_run + "succeed n0\nsucceed n1");
    const auto answers = story.answers(other);
    CHECK(says(answers, "n9 <- Refused job_full: job 'job' is over and ran other arguments: `a.py --lr=1` at n0"));
    CHECK(says(answers, "close n9: refused"));
    CHECK(says(story.answers("join n2 entry=a.py arguments=--lr=1"), "n2 <- JobEnded"));
}

TEST_CASE("after the end of a job that takes surplus nodes a late one receives the end, whatever it runs") {
    for (const auto* terms : {"min=1 max=2", "min=2 max=2 spares=1 last_call=1s"}) {
        INFO(terms);
        Story story(terms);
        story.answers(two_run);
        story.answers("succeed n0\nsucceed n1");
        CHECK(says(story.answers(other), "n9 <- JobEnded succeeded"));
    }
    // It stood by, and the daemon restarted just before the end.
    Story spare("min=1 max=2 quiet_always");
    spare.answers(two_run + "advance 6s\n" + other);
    spare.answers("restart\nresume n0 done\nresume n1 done");
    CHECK(says(spare.answers("join n9 entry=a.py arguments=--lr=2"), "n9 <- JobEnded succeeded"));
}

TEST_CASE("the next agent of a host that was in a round is not refused after the end either") {
    Story story("min=2 max=2");
    story.answers("join n0 entry=a.py arguments=--id=0\njoin n1 entry=a.py arguments=--id=1");
    story.answers("succeed n1\nkill n1\nsucceed n0");
    CHECK(says(story.answers("join m1 host=n1 entry=a.py arguments=--id=1"), "m1 <- JobEnded succeeded"));
}

TEST_CASE("long arguments are shown where they differ") {
    native::Join one;
    one.entry = "train.py";
    one.arguments = std::string(300, 'x') + " --lr 0.1 " + std::string(300, 'y');
    auto two = one;
    two.arguments[308] = '2';
    const auto [first, second] = rendezvous::both_launched(one, two);
    CHECK(first == "`..." + std::string(32, 'x') + " --lr 0.1 " + std::string(118, 'y') + "...`");
    CHECK(says(second, " --lr 0.2 "));
    CHECK(says(rendezvous::both_launched(one, one).second, "(the difference is further on)"));
    // Nothing is cut within a character.
    one.arguments = std::string(100, 'x') + std::string("\xc3\xa4") + std::string(100, 'x');
    two.arguments = std::string(100, 'x') + std::string("\xc3\xa5") + std::string(100, 'x');
    CHECK(says(rendezvous::both_launched(one, two).first, "x\xc3\xa4x"));
}

}  // namespace muster::test
