// When a node may keep its workers although the daemon is silent. The lease is 5 s.
#include "rendezvous/base/hmac_sha256.h"
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

namespace {

const Lines questions{"ask 0", "ask 2"};

/// All of it but what is said on the dead connection.
Lines without_connection(Lines lines) {
    std::erase_if(lines, [](const std::string& line) {
        return line == "send Ping" || line == "disconnect" || line == "connect" || line.starts_with("send ");
    });
    return lines;
}

}  // namespace

TEST_CASE("silent for 0.6 lease, a node asks its peers, and again each 0.1 lease") {
    Dialogue talk;
    talk.settle_in();
    CHECK(without_connection(talk.pass(2999ms)).empty());
    CHECK(without_connection(talk.pass(1ms)) == questions);
    CHECK(without_connection(talk.pass(499ms)).empty());
    CHECK(without_connection(talk.pass(1ms)) == questions);
}

TEST_CASE("without an answer from all peers the workers are killed in time to be gone by 0.9 lease") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(4000ms);
    talk.peer(0, true);
    CHECK_FALSE(any_starts_with(talk.pass(399ms), "fenced"));
    CHECK(any_starts_with(talk.pass(1ms), "fenced: no answer from the rendezvous for 4.4 s, and not all other"));
}

TEST_CASE("a peer that still has the daemon means that a round may be sealed without this node") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(4000ms);
    talk.peer(0, true);
    talk.peer(2, false);
    CHECK(any_starts_with(talk.pass(500ms), "fenced: no answer from the rendezvous for 4.4 s, while another node"));
    CHECK_FALSE(any_starts_with(talk.pass(10s), "fenced"));
}

TEST_CASE("a peer that has no port is not asked, and so cannot say yes") {
    Dialogue talk;
    talk.settle_in();
    talk.daemon(native::Peers{0, {{0, "p0", 6000}, {1, "p1", 6000}, {2, "p2", 0}}});
    talk.pass(2999ms);
    CHECK(without_connection(talk.pass(1ms)) == Lines{"ask 0"});
    talk.pass(1s);
    talk.peer(0, true);
    CHECK(any_starts_with(talk.pass(400ms), "fenced: no answer from the rendezvous for 4.4 s, and not all other"));
}

TEST_CASE("what a peer said before all had lost the daemon is not why the workers are killed") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(3s);
    talk.peer(2, false);
    talk.pass(500ms);
    talk.peer(0, true);
    talk.peer(2, true);
    CHECK(any_starts_with(talk.pass(1250ms), "fenced: no answer from the rendezvous for 4.7 s, and not all other"));
}

TEST_CASE("a peer in another round does not count") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(4000ms);
    talk.peer(0, true);
    talk.peer(2, true, 1);
    CHECK(any_starts_with(talk.pass(500ms), "fenced"));
}

TEST_CASE("as long as all peers have lost the daemon too, nobody kills, until the lost time-out") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(3s);
    while (talk.now < Instant(1059s)) {
        talk.peer(0, true);
        talk.peer(2, true);
        REQUIRE_FALSE(any_starts_with(talk.pass(500ms), "fenced"));
    }
    talk.peer(0, true);
    talk.peer(2, true);
    const auto end = talk.pass(2s);
    CHECK(any_starts_with(end, "fenced: "));
    CHECK(any_starts_with(end, "lost: gpu00:29400 has not answered for 60 s"));
}

TEST_CASE("a node that was through and has gone is asked no more, and its silence kills nobody") {
    Dialogue talk;
    talk.settle_in();
    talk.daemon(native::Peers{0, {{0, "p0", 6000}, {1, "p1", 6000}}});
    talk.pass(3s);
    while (talk.now < Instant(1050s)) {
        talk.peer(0, true);
        REQUIRE_FALSE(any_starts_with(talk.pass(500ms), "fenced"));
    }
    Dialogue alone;
    alone.settle_in();
    alone.daemon(native::Peers{0, {{1, "p1", 6000}}});
    CHECK_FALSE(any_starts_with(alone.pass(50s), "fenced"));
    Dialogue other;  // a list of another round says nothing
    other.settle_in();
    other.daemon(native::Peers{1, {{1, "p1", 6000}}});
    CHECK(any_starts_with(other.pass(10s), "fenced"));
}

TEST_CASE("what all peers agreed on holds for a quarter of a lease, and no longer") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(4000ms);  // asked just now
    talk.peer(0, true);
    talk.peer(2, true);
    CHECK_FALSE(any_starts_with(talk.pass(500ms), "fenced"));
    // One has found the daemon again: this node has the rest of the quarter to find it as well.
    talk.peer(0, false);
    CHECK_FALSE(any_starts_with(talk.pass(749ms), "fenced"));
    CHECK(any_starts_with(talk.pass(1ms), "fenced"));
    Dialogue early;  // a quarter that is over sooner shortens nothing
    early.settle_in();
    early.pass(3s);
    early.peer(0, true);
    early.peer(2, true);
    CHECK_FALSE(any_starts_with(early.pass(1399ms), "fenced"));
    CHECK(any_starts_with(early.pass(1ms), "fenced"));
}

TEST_CASE("a daemon that is found again in time costs nothing") {
    Dialogue talk;
    talk.settle_in();
    talk.broken();
    talk.pass(4400ms);
    talk.open();
    talk.pong();
    CHECK(talk.pass(20s, true) == Lines(80, "send Ping"));
}

TEST_CASE("the only node of a round asks nobody and keeps its workers until the lost time-out") {
    Dialogue talk;
    talk.settle_in(1);
    const auto quiet = talk.pass(59'999ms);
    CHECK_FALSE(any_starts_with(quiet, "fenced"));
    CHECK_FALSE(any_starts_with(quiet, "ask"));
    CHECK(any_starts_with(talk.pass(1ms), "fenced"));
}

TEST_CASE("silence counts from the sending of the last answered message, not from its answer") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(1000ms);
    const auto sent = talk.now;  // a ping went out just now
    talk.now += 2s;              // and its answer took long
    talk.pong();
    CHECK_FALSE(any_starts_with(talk.pass(sent + 3s - talk.now - 1ms), "ask"));
    CHECK(any_starts_with(talk.pass(1ms), "ask"));
}

TEST_CASE("the guardian is fed only as long as its kill would come before a round without this node") {
    Dialogue talk;
    CHECK(talk.core->may_feed(talk.now));
    talk.settle_in();
    talk.pass(1499ms);
    CHECK(talk.core->may_feed(talk.now));
    talk.pass(1ms);
    CHECK_FALSE(talk.core->may_feed(talk.now));  // 0.3 lease; the guardian waits 0.8
    talk.pass(1500ms);                           // 0.6 lease: asked
    talk.peer(0, true);
    CHECK_FALSE(talk.core->may_feed(talk.now));
    talk.peer(2, true);
    CHECK(talk.core->may_feed(talk.now));
    Dialogue alone;
    alone.settle_in(1);
    alone.pass(56s);
    CHECK(alone.core->may_feed(alone.now));
    alone.pass(1s);
    CHECK_FALSE(alone.core->may_feed(alone.now));
}

TEST_CASE("once the workers are gone there is nothing to fence") {
    Dialogue talk;
    talk.settle_in();
    talk.daemon(native::RoundEnded{0, native::RoundEndReason::node_lost, false, "x"});
    talk.lines(talk.core->round_report({0, {}, 0}, talk.now));
    talk.join(0);
    CHECK_FALSE(any_starts_with(talk.pass(50s), "fenced"));
}

TEST_CASE("a node says that it has lost the daemon from 0.4 lease on, and keeps that promise") {
    Dialogue talk;
    talk.settle_in();
    const native::PeerAsk ask{"job", 0, 1};
    talk.pass(1999ms);
    CHECK(talk.core->answer(ask, talk.now) == native::PeerAnswer{0, false});
    talk.pass(1ms);
    CHECK(talk.core->answer({.job = "other", .round = 0, .group_rank = 1}, talk.now) ==
          native::PeerAnswer{no_round, false});
    CHECK(talk.core->answer({.job = "job", .round = 1, .group_rank = 1}, talk.now) == native::PeerAnswer{0, false});
    // Meant for another node, whose address is one of ours as well: that one has not said so.
    CHECK(talk.core->answer({.job = "job", .round = 0, .group_rank = 0}, talk.now) ==
          native::PeerAnswer{no_round, false});
    CHECK(talk.core->answer(ask, talk.now) == native::PeerAnswer{0, true});
    // The daemon is there again and ends the round; the next join waits until nobody relies on that answer any more.
    talk.broken();
    talk.pass(20ms);
    talk.open();
    talk.daemon(native::RoundEnded{0, native::RoundEndReason::node_lost, false, "x"});
    talk.lines(talk.core->round_report({0, {}, 0}, talk.now));
    CHECK(talk.join(0).empty());
    CHECK(talk.lines(talk.core->workers_seen({.round = 0, .workers = {}}, talk.now)).empty());
    CHECK_FALSE(any_starts_with(talk.pass(5479ms, true), "send Join"));
    CHECK(any_starts_with(talk.pass(1ms, true), "send Join"));
}

namespace {

/// The hash of a round: nobody can tell it from another round's.
native::KeyedHash keyed(const std::string& round_secret) {
    return [round_secret](std::string_view text) { return hmac_sha256(round_secret, text); };
}

/// Members of round 0, whose questions and answers are proved with its secret.
struct Provers {
    explicit Provers(std::uint32_t rank, const std::string& round_secret = "the round's")
        : proof(keyed, cat("seed ", rank)) {
        native::Assigned assigned;
        assigned.round = 0;
        assigned.group_rank = rank;
        assigned.secret = round_secret;
        proof.begin(assigned);
    }
    native::PeerAsk ask(std::uint32_t whom) {
        native::PeerAsk made{.job = "job", .round = 0, .group_rank = whom};
        proof.next_question();
        proof.sign(made);
        return made;
    }
    native::PeerAnswer answer(const native::PeerAsk& ask, bool lost = true) {
        native::PeerAnswer made{.round = 0, .leader_lost = lost};
        proof.sign(ask, made);
        return made;
    }
    PeerProof proof;
};

/// Of a job with a key, in round 0 with rank 1 of 3, and without the daemon for 0.6 lease.
struct Keyed : Dialogue {
    explicit Keyed(std::string round_secret = "the round's") {
        config.peers_hash = keyed;
        core.emplace(config);
        settle_in(3, std::move(round_secret));
        pass(3s);
    }
    /// It asks again half a second later, and both peers answer with what `answer` makes of the question.
    Lines after_answers(const std::function<native::PeerAnswer(const native::PeerAsk&)>& answer) {
        while (now < Instant(1010s)) {
            for (const auto& ask : std::exchange(last_asked, {})) hears(PeerAnswered{ask.group_rank, answer(ask)});
            if (const auto said = pass(500ms); any_starts_with(said, "fenced")) return said;
        }
        return {};
    }
};

}  // namespace

TEST_CASE("with a key, peers that prove that they have lost the daemon too keep the workers alive") {
    Keyed talk;
    CHECK(talk.after_answers([](const native::PeerAsk& ask) { return Provers(ask.group_rank).answer(ask); }).empty());
}

TEST_CASE("with a key, nobody else's word keeps the workers of a cut-off node alive") {
    const auto fences = [](const std::function<native::PeerAnswer(const native::PeerAsk&)>& answer) {
        return any_starts_with(Keyed().after_answers(answer), "fenced: no answer from the rendezvous for 4.4 s");
    };
    CHECK(fences([](const native::PeerAsk&) { return native::PeerAnswer{.round = 0, .leader_lost = true}; }));
    CHECK(fences([](const native::PeerAsk& ask) { return Provers(ask.group_rank, "another").answer(ask); }));
    // What another peer proved, or this one for "not lost", or for the question before.
    CHECK(fences([](const native::PeerAsk& ask) {
        auto of_other = ask;
        of_other.group_rank = 2 - ask.group_rank;
        return Provers(ask.group_rank).answer(of_other);
    }));
    CHECK(fences([](const native::PeerAsk& ask) {
        auto answer = Provers(ask.group_rank).answer(ask, false);
        answer.leader_lost = true;
        return answer;
    }));
    CHECK(fences([](const native::PeerAsk& ask) {
        auto before = ask;
        --before.number;
        return Provers(ask.group_rank).answer(before);
    }));
    // Of another launch of the job, whose rounds have the same numbers; and what anybody can compute.
    CHECK(fences([](const native::PeerAsk& ask) { return Provers(ask.group_rank, "of another launch").answer(ask); }));
    CHECK(any_starts_with(Keyed("").after_answers([](const native::PeerAsk& ask) {
        native::PeerAnswer made{.round = 0, .leader_lost = true};
        made.proof = native::proof_of(keyed(""), ask, made);
        return made;
    }),
                          "fenced"));
    // The question itself, sent back.
    CHECK(fences([](const native::PeerAsk& ask) {
        return native::PeerAnswer{.round = 0, .leader_lost = true, .leader = {}, .proof = ask.proof};
    }));
}

TEST_CASE("with a key, a node answers an agent of its round once, and nobody else") {
    Keyed talk;
    Provers other(2);
    const auto ask = other.ask(1);
    const auto answer = talk.core->answer(ask, talk.now);
    REQUIRE(answer);
    CHECK(*answer == Provers(1).answer(ask));
    CHECK(other.proof.is_genuine(1, *answer));
    const auto is_ignored = [&](const native::PeerAsk& question) { return !talk.core->answer(question, talk.now); };
    CHECK(is_ignored(ask));  // recorded, and sent again
    const auto newer = other.ask(1);
    auto changed = newer;
    changed.asker = 0;
    CHECK(is_ignored(changed));
    CHECK(is_ignored(Provers(2, "another").ask(1)));
    CHECK(is_ignored({.job = "job", .round = 0, .group_rank = 1}));
    CHECK_FALSE(is_ignored(newer));  // what was ignored has used nothing up
    CHECK_FALSE(is_ignored(Provers(0).ask(1)));
}

}  // namespace muster::test
