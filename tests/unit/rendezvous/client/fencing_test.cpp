// When a node may keep its workers although the daemon is silent. The lease is 5 s.
#include "rendezvous/base/hmac_sha256.h"
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

namespace {

/// All of it but what is said on the dead connection.
Lines without_connection(Lines lines) {
    std::erase_if(lines, [](const std::string& line) {
        return line == "send Ping" || line == "disconnect" || line == "connect" || line.starts_with("send ");
    });
    return lines;
}

native::PeerAnswer says(bool lost, Round round = 0) {
    return {.round = round, .leader_lost = lost};
}

/// Passes this time, in which the parent answers each question at once: all have lost the daemon, by promises of this
/// age.
Lines agreeing(Dialogue& talk, Duration length, Duration age = 0ns) {
    Lines all;
    for (const auto end = talk.now + length; talk.now < end;) {
        for (auto& line : talk.pass(std::min<Duration>(10ms, end - talk.now))) all.push_back(std::move(line));
        for (const auto& ask : std::exchange(talk.last_asked, {}))
            for (auto& line : talk.hears(PeerAnswered{ask.number, native::PeerAnswer{0, true, age.count()}}))
                all.push_back(std::move(line));
    }
    return all;
}

/// The daemon is there again and ends the round; the next join waits until nobody relies on this node's promise.
void end_and_join(Dialogue& talk) {
    talk.broken();
    talk.pass(20ms);
    talk.open();
    talk.daemon(native::RoundEnded{0, native::RoundEndReason::node_lost, false, "x"});
    talk.lines(talk.core->round_report({0, {}, 0}, talk.now));
    CHECK(talk.join(0).empty());
}

}  // namespace

TEST_CASE("silent for 0.45 lease, a node asks its parent, and again at the pace of its tree") {
    Dialogue talk;
    talk.settle_in();
    CHECK(without_connection(talk.pass(2249ms)).empty());
    CHECK(without_connection(talk.pass(1ms)) == Lines{"ask 0"});
    CHECK(without_connection(talk.pass(299ms)).empty());
    CHECK(without_connection(talk.pass(1ms)) == Lines{"ask 0"});
    CHECK(talk.last_asked.back().number == 2);
    Dialogue deep;  // three steps from the last node to the root: a third of the time
    deep.settle_in({.position = 20, .size = 300});
    CHECK(without_connection(deep.pass(2250ms)) == Lines{"ask 1"});
    CHECK(without_connection(deep.pass(100ms)) == Lines{"ask 1"});
}

TEST_CASE("questions that get no answer do not hold up the next ones, up to four") {
    Dialogue talk;
    talk.settle_in({.position = 20, .size = 5000});
    CHECK(without_connection(talk.pass(2250ms + 1s)).size() == 4);
    talk.peer(1, std::nullopt);
    CHECK(talk.last_asked.back().group_rank == 0);
}

TEST_CASE("a parent that cannot be reached is stepped over until it answers again") {
    Dialogue talk;
    talk.settle_in({.position = 20, .size = 300});
    CHECK(without_connection(talk.pass(2250ms)) == Lines{"ask 1"});
    CHECK(without_connection(talk.peer(1, std::nullopt)) == Lines{"ask 0"});
    CHECK(without_connection(talk.pass(100ms)) == Lines{"ask 1", "ask 0"});
    talk.peer(1, says(true));
    CHECK(without_connection(talk.pass(100ms)) == Lines{"ask 1"});
    Dialogue portless;
    portless.settle_in({.position = 20, .size = 300});
    auto peers = portless.peers();
    peers.above[0].port = 0;
    portless.daemon(peers);
    CHECK(without_connection(portless.pass(2250ms)) == Lines{"ask 0"});
}

TEST_CASE("without an answer the workers are killed in time to be gone by 0.9 lease") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(4000ms);
    talk.peer(0, says(true));
    CHECK_FALSE(any_starts_with(talk.pass(399ms), "fenced"));
    CHECK(any_starts_with(talk.pass(1ms), "fenced: no answer from the rendezvous for 4.4 s, and not all other"));
}

TEST_CASE("a parent that still has the daemon means that a round may be sealed without this node") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(4000ms);
    talk.peer(0, says(false));
    CHECK(any_starts_with(talk.pass(500ms), "fenced: no answer from the rendezvous for 4.4 s, while another node"));
    CHECK_FALSE(any_starts_with(talk.pass(10s), "fenced"));
}

TEST_CASE("what a parent said before all had lost the daemon is not why the workers are killed") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(3s);
    talk.peer(0, says(false));
    talk.pass(300ms);
    talk.parent_agrees();
    const auto killed = talk.pass(1250ms);
    CHECK(any_starts_with(killed, "fenced: no answer from the rendezvous for 4."));
    CHECK(any_starts_with(killed, "fenced"));
}

TEST_CASE("a parent in another round does not count") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(4000ms);
    talk.peer(0, native::PeerAnswer{.round = 1, .leader_lost = true, .all_age_ns = 0});
    CHECK(any_starts_with(talk.pass(500ms), "fenced"));
}

TEST_CASE("as long as all have lost the daemon too, nobody kills, until the lost time-out") {
    Dialogue talk;
    talk.settle_in();
    REQUIRE_FALSE(any_starts_with(agreeing(talk, 59s, 500ms), "fenced"));
    const auto end = agreeing(talk, 2s);
    CHECK(any_starts_with(end, "fenced: "));
    CHECK(any_starts_with(end, "lost: gpu00:29400 has not answered for 60 s"));
}

TEST_CASE("what all agreed on holds until the oldest promise is a quarter of a lease old") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(2250ms);
    for (int i = 0; i < 6; ++i) {
        talk.peer(0, says(true));
        talk.pass(300ms);
    }
    talk.parent_agrees(250ms);  // asked just now
    // The parent has found the daemon again: this node has the rest of the quarter to find it as well.
    talk.pass(300ms);
    talk.peer(0, says(false));
    CHECK_FALSE(any_starts_with(talk.pass(699ms), "fenced"));
    CHECK(any_starts_with(talk.pass(1ms), "fenced"));
    Dialogue early;  // a quarter that is over sooner shortens nothing
    early.settle_in();
    early.pass(2250ms);
    early.parent_agrees(1s);
    CHECK_FALSE(any_starts_with(early.pass(2149ms), "fenced"));
    CHECK(any_starts_with(early.pass(1ms), "fenced"));
    Dialogue never;  // a lease or more, or less than nothing, is no age
    never.settle_in();
    never.pass(4250ms);
    never.parent_agrees(-1ns);
    never.pass(10ms);
    CHECK(any_starts_with(never.pass(140ms), "fenced"));
}

TEST_CASE("a node that has succeeded and left is no part of the tree: the others have new places") {
    Dialogue talk;
    talk.settle_in();
    talk.tree.size = 2;
    talk.daemon(talk.peers());
    REQUIRE_FALSE(any_starts_with(agreeing(talk, 50s), "fenced"));
    Dialogue alone;
    alone.settle_in();
    alone.tree = {.position = 0, .size = 1};
    alone.daemon(alone.peers());
    CHECK_FALSE(any_starts_with(alone.pass(50s), "fenced"));
    Dialogue other;  // places of another round, and impossible ones, say nothing
    other.settle_in();
    for (auto wrong :
         {native::Peers{1, {0, 1}, {}}, native::Peers{0, {3, 3}, {}}, native::Peers{0, {0, 4'000'000'000}, {}}})
        other.daemon(wrong);
    CHECK(any_starts_with(other.pass(10s), "fenced"));
}

TEST_CASE("the root agrees when each child has said so of its whole subtree") {
    Dialogue talk;
    talk.settle_in({.position = 0, .size = 3, .fan_out = 1});  // 0 - 1 - 2
    talk.pass(2250ms);
    CHECK(talk.asks(1, true, 1) == says(true));     // nobody knows how old this is
    CHECK(talk.asks(1, true, 2, 1) == says(true));  // its child has not said so
    CHECK(talk.asks(1, true, 3, 2, 1, 100ms)->all_age_ns == 100'000'000);
    talk.pass(500ms);
    // The bound is when the echoed answer left, less the age: half a second later it is older by that.
    CHECK(talk.asks(1, true, 4, 3, 1, 200ms)->all_age_ns == 600'000'000);
    CHECK_FALSE(any_starts_with(talk.pass(1649ms), "fenced"));
    CHECK(any_starts_with(talk.pass(1ms), "fenced"));
}

TEST_CASE("a grandchild that came around its parent counts, and does not stand for it") {
    Dialogue talk;
    talk.settle_in({.position = 0, .size = 3, .fan_out = 1});
    talk.pass(2250ms);
    talk.asks(2, true, 1);
    CHECK(talk.asks(2, true, 2, 1) == says(true));
    talk.asks(1, true, 1);
    CHECK(talk.asks(1, true, 2, 1)->all_age_ns == 0);
    // Silent for longer than it may be.
    talk.pass(900ms);
    talk.asks(2, true, 3, 2);
    CHECK(talk.asks(2, true, 4, 3)->all_age_ns == 900'000'000);  // what was agreed before
    talk.pass(500ms);
    CHECK(talk.asks(2, true, 5, 4) == says(true));
}

TEST_CASE("questions that make no sense count for nothing") {
    Dialogue talk;
    talk.settle_in({.position = 0, .size = 2});
    talk.pass(2250ms);
    talk.asks(1, true, 1);
    CHECK(talk.asks(1, true, 2, 7) == says(true));           // an answer that was never given
    CHECK(talk.asks(1, true, 3, 2, 0, -1ns) == says(true));  // a promise of the future
    CHECK(talk.asks(1, true, 4, 3, 0, 30h) == says(true));   // of long ago
    CHECK(talk.asks(1, true, 5, 4, 0, 2s) == says(true));    // too old
    CHECK(talk.asks(2, true, 6, 5) == says(true));           // nobody's position
    talk.tree.size = 3;
    CHECK(talk.asks(1, true, 7, 5) == says(true));  // of another tree
    talk.tree.size = 2;
    CHECK(talk.asks(1, true, 8, 5)->all_age_ns == 0);
    CHECK(talk.asks(1, false, 3, 2)->all_age_ns == 0);  // overtaken
    CHECK(talk.asks(1, true, 9, 8)->all_age_ns == 0);
}

TEST_CASE("a member tells its parent who has promised below it, and the age") {
    Dialogue talk;
    talk.settle_in({.position = 1, .size = 300});  // its children: 17 to 32
    talk.pass(2250ms);
    CHECK(talk.last_asked.back().covered == 0);
    talk.peer(0, says(true));
    talk.asks(18, true, 1);
    talk.asks(18, true, 2, 1, 0xffff, 40ms);
    talk.asks(17, true, 1);
    talk.asks(17, true, 2, 1, 0x7fff);  // not all of its 16
    talk.pass(100ms);
    const auto& ask = talk.last_asked.back();
    CHECK(ask.covered == 2);
    CHECK(ask.age_ns == 140'000'000);
    CHECK(ask.echo == 1);
    CHECK(ask.held_ns == 100'000'000);
}

TEST_CASE("a member that finds the daemon again says so once to those above it") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(2300ms);
    CHECK(talk.last_asked.back().lost);
    CHECK(without_connection(talk.pong()) == Lines{"ask 0"});
    CHECK_FALSE(talk.last_asked.back().lost);
    CHECK(without_connection(talk.pass(1500ms, true)).empty());
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
    CHECK_FALSE(any_starts_with(talk.pass(sent + 2250ms - talk.now - 1ms), "ask"));
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
    talk.pass(750ms);                            // 0.45 lease: asked
    talk.peer(0, says(true));
    CHECK_FALSE(talk.core->may_feed(talk.now));
    talk.pass(300ms);
    talk.parent_agrees(1s);
    CHECK(talk.core->may_feed(talk.now));
    talk.pass(250ms);
    CHECK_FALSE(talk.core->may_feed(talk.now));
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
    const native::PeerAsk ask{.job = "job", .round = 0, .group_rank = 1};
    talk.pass(1999ms);
    CHECK(talk.core->answer(ask, talk.now) == says(false));
    talk.pass(1ms);
    CHECK(talk.core->answer({.job = "other", .round = 0, .group_rank = 1}, talk.now) == says(false, no_round));
    CHECK(talk.core->answer({.job = "job", .round = 1, .group_rank = 1}, talk.now) == says(false));
    // Meant for another node, whose address is one of ours as well: that one has not said so.
    CHECK(talk.core->answer({.job = "job", .round = 0, .group_rank = 0}, talk.now) == says(false, no_round));
    CHECK(talk.core->answer(ask, talk.now) == says(true));
    end_and_join(talk);
    CHECK(talk.lines(talk.core->submit(native::WorkersSeen{.round = 0}, talk.now)).empty());
    CHECK_FALSE(any_starts_with(talk.pass(5479ms, true), "send Join"));
    CHECK(any_starts_with(talk.pass(1ms, true), "send Join"));
}

TEST_CASE("a question is a promise too") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(2250ms);
    end_and_join(talk);
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
    explicit Provers(std::uint32_t position, const std::string& round_secret = "the round's",
                     const std::string& run = "")
        : proof(keyed, cat("seed ", run, position)), rank(position) {
        native::Assigned assigned;
        assigned.round = 0;
        assigned.secret = round_secret;
        proof.begin(assigned);
    }
    native::PeerAsk ask(std::uint32_t whom, std::uint64_t echo = 0, const std::string& answered_nonce = {}) {
        native::PeerAsk made{.job = "job", .round = 0, .group_rank = whom, .asker = rank, .tree_size = 3, .lost = true};
        made.number = ++number;
        made.echo = echo;
        proof.sign(made, answered_nonce);
        return made;
    }
    native::PeerAnswer answer(const native::PeerAsk& ask, bool lost = true) {
        native::PeerAnswer made{.round = 0, .leader_lost = lost, .all_age_ns = lost ? 0 : -1};
        proof.sign(ask, made);
        return made;
    }
    PeerProof proof;
    std::uint32_t rank;
    std::uint64_t number = 0;
};

/// Of a job with a key, in round 0 of 3, and without the daemon for 0.45 lease.
struct Keyed : Dialogue {
    explicit Keyed(std::uint32_t position = 1, std::string round_secret = "the round's") {
        config.peers_hash = keyed;
        core.emplace(config);
        settle_in({.position = position, .size = 3}, std::move(round_secret));
        pass(2250ms);
    }
    /// The parent answers with what `answer` makes of each question.
    Lines after_answers(const std::function<native::PeerAnswer(const native::PeerAsk&)>& answer) {
        while (now < Instant(1010s)) {
            for (const auto& ask : std::exchange(last_asked, {})) hears(PeerAnswered{ask.number, answer(ask)});
            if (const auto said = pass(100ms); any_starts_with(said, "fenced")) return said;
        }
        return {};
    }
};

}  // namespace

TEST_CASE("with a key, a parent that proves that all have lost the daemon keeps the workers alive") {
    Keyed talk;
    CHECK(talk.after_answers([](const native::PeerAsk& ask) { return Provers(ask.group_rank).answer(ask); }).empty());
}

TEST_CASE("with a key, nobody else's word keeps the workers of a cut-off node alive") {
    const auto fences = [](const std::function<native::PeerAnswer(const native::PeerAsk&)>& answer) {
        return any_starts_with(Keyed().after_answers(answer), "fenced: no answer from the rendezvous for 4.4 s");
    };
    const native::PeerAnswer all{.round = 0, .leader_lost = true, .all_age_ns = 0};
    CHECK(fences([&](const native::PeerAsk&) { return all; }));
    CHECK(fences([](const native::PeerAsk& ask) { return Provers(ask.group_rank, "another").answer(ask); }));
    // What another peer proved, or this one for "not lost", for another age, or for the question before.
    CHECK(fences([](const native::PeerAsk& ask) {
        auto of_other = ask;
        of_other.group_rank = 2;
        return Provers(ask.group_rank).answer(of_other);
    }));
    CHECK(fences([](const native::PeerAsk& ask) {
        auto answer = Provers(ask.group_rank).answer(ask, false);
        answer.leader_lost = true;
        answer.all_age_ns = 0;
        return answer;
    }));
    CHECK(fences([](const native::PeerAsk& ask) {
        auto before = ask;
        --before.number;
        return Provers(ask.group_rank).answer(before);
    }));
    // Of another launch of the job, whose rounds have the same numbers; and what anybody can compute.
    CHECK(fences([](const native::PeerAsk& ask) { return Provers(ask.group_rank, "of another launch").answer(ask); }));
    CHECK(any_starts_with(Keyed(1, "").after_answers([](const native::PeerAsk& ask) {
        native::PeerAnswer made{.round = 0, .leader_lost = true, .all_age_ns = 0};
        made.proof = native::proof_of(keyed(""), ask, made);
        return made;
    }),
                          "fenced"));
    // The question itself, sent back.
    CHECK(fences([&](const native::PeerAsk& ask) {
        auto answer = all;
        answer.proof = ask.proof;
        return answer;
    }));
}

TEST_CASE("with a key, a node answers an agent of its round once, and nobody else") {
    Keyed talk;
    Provers other(2);
    const auto ask = other.ask(1);
    const auto answer = talk.core->answer(ask, talk.now);
    REQUIRE(answer);
    CHECK(other.proof.is_genuine(ask, *answer));
    const auto is_ignored = [&](const native::PeerAsk& question) { return !talk.core->answer(question, talk.now); };
    CHECK(is_ignored(ask));  // recorded, and sent again
    const auto newer = other.ask(1);
    auto changed = newer;
    changed.asker = 0;
    CHECK(is_ignored(changed));
    changed = newer;
    changed.lost = false;
    CHECK(is_ignored(changed));
    changed = newer;
    changed.age_ns = 1;
    CHECK(is_ignored(changed));
    CHECK(is_ignored(Provers(2, "another").ask(1)));
    CHECK(is_ignored({.job = "job", .round = 0, .group_rank = 1}));
    CHECK_FALSE(is_ignored(newer));  // what was ignored has used nothing up
    CHECK_FALSE(is_ignored(Provers(0).ask(1)));
}

TEST_CASE("with a key, a question counts that echoes an answer of this run, and no recorded one of an earlier run") {
    Keyed root(0);
    const auto counts = [&](const std::string& answered_nonce, const std::string& run) {
        for (const std::uint32_t child : {1U, 2U}) {
            Provers prover(child, "the round's", run);
            const auto answer = root.core->answer(prover.ask(0), root.now);
            REQUIRE(answer);
            const auto nonce = answered_nonce.empty() ? answer->nonce : answered_nonce;
            const auto again = root.core->answer(prover.ask(0, 1, nonce), root.now);
            if (child == 2) return again && again->all_age_ns >= 0;
        }
        return false;
    };
    CHECK_FALSE(counts("a nonce of an earlier run", "1"));
    CHECK(counts("", "2"));
}

}  // namespace muster::test
