// A daemon that answers and cannot keep its state: what the agent prints, and how long it waits.
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {
namespace {

native::StateStalled full(bool decided) {
    return {"the disk is full", decided};
}

void append(Lines& lines, const Lines& more) {
    lines.insert(lines.end(), more.begin(), more.end());
}

std::string progress(const Lines& lines) {
    std::string last;
    for (const auto& line : lines)
        if (line.starts_with("progress: ")) last = line;
    return last;
}

/// For this time, each attempt finds a daemon that cannot open its state.
Lines meet_follower(Dialogue& talk, Lines said, Duration duration) {
    const auto end = talk.now + duration;
    for (std::size_t at = 0; at < said.size() || talk.now < end; ++at) {
        while (at == said.size() && talk.now < end) append(said, talk.pass(10ms));
        if (at == said.size() || said[at] != "connect") continue;
        append(said, talk.open());
        append(said, talk.daemon(full(false)));
        append(said, talk.daemon(native::NotLeader{""}));
    }
    return said;
}

}  // namespace

TEST_CASE("a node that joins prints why nothing is decided, and gives up after the lost timeout") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.pong();
    talk.daemon(full(true));
    CHECK(progress(talk.pass(1s, true)) ==
          "progress: the daemon at gpu00:29400 holds back its decisions, because it cannot write its state: the disk "
          "is full; "
          "timeout in 59 s");
    const auto said = talk.pass(60s, true);
    REQUIRE(any_starts_with(said, "lost: no decision within 60 s: the daemon at gpu00:29400 holds back its decisions"));
    CHECK(said.back().find("--rdzv-lost-timeout") != std::string::npos);
}

TEST_CASE("a node that waits for others alone prints it, and keeps the join timeout") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.pong();
    talk.daemon(full(false));
    CHECK(progress(talk.pass(1s, true)).ends_with("the disk is full; timeout in 599 s"));
    CHECK_FALSE(any_starts_with(talk.pass(500s, true), "lost"));
    CHECK(any_starts_with(talk.pass(100s, true), "lost: no round within 10 min: "));
}

TEST_CASE("the join timeout holds where it is the shorter one") {
    Dialogue talk;
    talk.config.join_timeout = 12s;
    talk.core.emplace(talk.config);
    talk.join();
    talk.open();
    talk.pong();
    talk.daemon(full(true));
    const auto said = talk.pass(13s, true);
    REQUIRE(any_starts_with(said, "lost: no round within 12 s: "));
    CHECK(said.back().find("the disk is full") != std::string::npos);
}

TEST_CASE("the daemon goes on: the node waits as before") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.pong();
    talk.daemon(full(true));
    talk.pass(50s, true);
    talk.daemon(native::StateStalled{});
    talk.daemon(native::Gathering{1, 2, 2, -1, "1 more node"});
    CHECK(progress(talk.pass(2s, true)).starts_with("progress: 1 of 2 nodes joined"));
    CHECK_FALSE(any_starts_with(talk.pass(100s, true), "lost"));
}

TEST_CASE("a node that waits for a daemon that cannot open its state prints why, and no other advice") {
    Dialogue talk;
    const auto said = meet_follower(talk, talk.join(), 60s);
    REQUIRE(any_starts_with(said, "progress: "));
    CHECK(
        progress(said).starts_with("progress: gpu00:29400: gpu00:29400 serves no job, because it cannot write its "
                                   "state: the disk is full; timeout in 5"));
    CHECK(progress(said).find("Check") == std::string::npos);
    REQUIRE(any_starts_with(talk.pass(1s), "connect"));
    talk.open();
    talk.pong();
    auto more = talk.daemon(native::Gathering{1, 2, 2, -1, "1 more node"});
    append(more, talk.pass(2s, true));
    CHECK(progress(more).starts_with("progress: 1 of 2 nodes joined"));
}

TEST_CASE("such a daemon's words are no contact with it: workers end after the lost timeout, and the reason is told") {
    Dialogue talk;
    talk.settle_in(1);
    const auto heard = talk.core->heard_until();
    const auto said = meet_follower(talk, talk.broken(), 61s);
    CHECK(talk.core->heard_until() == heard);
    CHECK(any_starts_with(said,
                          "lost: gpu00:29400 has not answered for 60 s; last tried: gpu00:29400 serves no job, "
                          "because it cannot write its state: the disk is full; "));
}

TEST_CASE("workers run on where nothing is decided for their node, however long, and nothing is printed") {
    Dialogue talk;
    talk.settle_in();
    talk.daemon(full(false));
    const auto said = talk.pass(300s, true);
    CHECK(progress(said).empty());
    CHECK_FALSE(any_starts_with(said, "lost"));
}

TEST_CASE("workers whose round may have ended are kept for the lost timeout, and their node prints why it waits") {
    Dialogue talk;
    talk.settle_in();
    talk.daemon(full(true));
    CHECK(progress(talk.pass(1s, true)).ends_with("the disk is full; timeout in 59 s"));
    CHECK_FALSE(any_starts_with(talk.pass(58s, true), "lost"));
    CHECK(any_starts_with(talk.pass(2s, true), "lost: no decision within 60 s"));
}

TEST_CASE("another connection may lead to a daemon that can decide: the lost timeout begins anew") {
    Dialogue talk;
    talk.settle_in();
    talk.daemon(full(true));
    talk.pass(59s, true);
    talk.broken();
    talk.pass(1s);
    talk.open();
    talk.pong();
    CHECK_FALSE(any_starts_with(talk.pass(300s, true), "lost"));
}

}  // namespace muster::test
