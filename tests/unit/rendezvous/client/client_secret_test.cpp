#include <algorithm>
#include <utility>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

TEST_CASE("with a secret nothing is said before the challenge, and nobody is believed before the proof") {
    const native::KeyedHash hash = [](std::string_view text) {
        return std::to_string(std::hash<std::string_view>{}(text));
    };
    const auto with_secret = [&] {
        Dialogue talk;
        talk.config.key.secret = hash;
        talk.core.emplace(talk.config);
        talk.join();
        return talk;
    };
    auto talk = with_secret();
    CHECK(talk.open() == Lines{"send Hello"});
    CHECK(talk.lines(talk.core->command({}, talk.now)).empty());
    CHECK(talk.daemon(native::Challenge{"nonce", ""}) == Lines{"send Proof"});
    // Whoever asked may be anybody.
    CHECK(talk.daemon(Dialogue::assigned()).front() == "disconnect a stranger");

    auto fooled = with_secret();
    fooled.open();
    fooled.daemon(native::Challenge{"nonce", ""});
    CHECK(fooled.daemon(native::Challenge{"", "made up"}).front() == "disconnect a stranger");

    auto honest = with_secret();
    native::Hello hello;
    for (const auto& output : honest.core->step(ConnectionOpened{"10.0.0.1"}, honest.now))
        if (const auto* send = std::get_if<Send>(&output)) hello = std::get<native::Hello>(send->message);
    CHECK_FALSE(hello.challenge.empty());
    CHECK(honest.lines(honest.core->command({}, honest.now)).empty());
    CHECK(honest.daemon(native::Challenge{"nonce", ""}) == Lines{"send Proof"});
    CHECK(honest.daemon(native::Challenge{"", native::proof_of(hash, native::Prover::daemon, hello, "nonce")}) ==
          Lines{"send Join", "send Command", "send Ping"});
    CHECK(honest.daemon(Dialogue::assigned()) == Lines{"deliver Assigned"});
}

TEST_CASE("each connection is proved anew, and after the first one no stranger's word ends anything") {
    const auto hash_with = [](std::string key) -> native::KeyedHash {
        return
            [key](std::string_view text) { return std::to_string(std::hash<std::string>{}(key + std::string(text))); };
    };
    const auto hash = hash_with("key");
    Dialogue talk;
    talk.config.key.secret = hash;
    talk.config.secret_seed = "random";
    talk.core.emplace(talk.config);
    talk.join();
    native::Hello hello;
    native::Proof proof;
    native::Resume resumed;
    /// Up to the daemon's proof, by somebody who has that key.
    const auto shake_hands = [&](const native::KeyedHash& theirs, const char* nonce) {
        talk.open();
        hello = std::get<native::Hello>(talk.last_sent);
        for (const auto& output : talk.core->step(MessageReceived{native::Challenge{nonce, ""}}, talk.now))
            if (const auto* send = std::get_if<Send>(&output))
                if (const auto* said = std::get_if<native::Proof>(&send->message)) proof = *said;
        Lines lines;
        for (const auto& output : talk.core->step(
                 MessageReceived{native::Challenge{"", native::proof_of(theirs, native::Prover::daemon, hello, nonce)}},
                 talk.now)) {
            if (const auto* send = std::get_if<Send>(&output))
                if (const auto* said = std::get_if<native::Resume>(&send->message)) resumed = *said;
            for (auto& line : talk.lines({output})) lines.push_back(std::move(line));
        }
        return lines;
    };
    CHECK(shake_hands(hash, "one").front() == "send Join");
    CHECK(proof.proof == native::proof_of(hash, native::Prover::agent, hello, "one"));
    const auto first_hello = hello;
    auto told = Dialogue::assigned();
    told.secret = "the round's";
    CHECK(talk.daemon(told) == Lines{"deliver Assigned"});
    CHECK(std::get<native::Assigned>(talk.last_delivered).secret == "the round's");
    // Somebody else answers at that address: he has another secret, or begins with what only the daemon may say.
    talk.broken();
    talk.pass(20ms);
    CHECK(shake_hands(hash_with("other"), "one").front() == "disconnect a stranger");
    CHECK(hello.challenge != first_hello.challenge);
    for (const native::Message& said :
         {native::Message(native::Refused{native::RefusalReason::secret, "no"}), native::Message(native::Drain{"go"}),
          native::Message(native::RoundEnded{0, native::RoundEndReason::node_lost, true, "x"}),
          native::Message(native::FaultOrdered{1, 0, {}})}) {
        talk.pass(1s);
        talk.open();
        talk.daemon(native::Challenge{"two", ""});
        CHECK(talk.daemon(said) == Lines{"disconnect a stranger"});
    }
    // The daemon is back.
    talk.pass(1s);
    CHECK(shake_hands(hash, "three").front() == "send Resume");
    CHECK(resumed.round == 0);
    CHECK(resumed.as_assigned.secret.empty());  // the workers have their keys, and no daemon needs it
    CHECK(talk.daemon(native::Drain{"go"}) == Lines{"deliver Drain", "progress: gpu00:29400 answers again after 5 s"});
}

TEST_CASE("a daemon that asks for nothing is left after half a lease, and a refusal is heard from anybody") {
    Dialogue talk;
    talk.config.key.secret = [](std::string_view) { return std::string("x"); };
    talk.core.emplace(talk.config);
    talk.join();
    talk.open();
    const auto later = talk.pass(talk.config.lease);
    CHECK(std::find(later.begin(), later.end(), "disconnect") != later.end());
    talk.open();
    CHECK(talk.daemon(native::Refused{native::RefusalReason::secret, "no"}) == Lines{"deliver Refused"});
}

TEST_CASE("over TLS both sides have proved the key: no proofs, and everything is said at once") {
    Dialogue talk;
    talk.config.key.secret = [](std::string_view) { return std::string("x"); };
    talk.core.emplace(talk.config);
    talk.join();
    CHECK(talk.hears(ConnectionOpened{.address = "10.0.0.1", .is_proven = true}) ==
          Lines{"send Hello", "send Join", "send Ping"});
    CHECK(talk.daemon(Dialogue::assigned()).front() == "deliver Assigned");
}

/// Refused at each connect, until nothing is connected any more: when, after the first refusal.
static Duration refuse(Dialogue& talk, const ConnectionFailed& refusal) {
    const Instant began = talk.now;
    while (!any_starts_with(talk.hears(refusal), "deliver Refused")) {
        REQUIRE(talk.now < began + 2s);
        while (!any_starts_with(talk.pass(20ms), "connect")) REQUIRE(talk.now < began + 2s);
    }
    return talk.now - began;
}

TEST_CASE("a handshake that is refused for a second ends a node that has heard nothing yet, and no workers") {
    const ConnectionFailed refusal{.tried = "10.0.0.1: another secret", .reached = ConnectionFailed::Reached::refused};
    Dialogue first;
    first.join();
    const auto took = refuse(first, refusal);
    CHECK(took >= 1s);
    CHECK(took <= 1500ms);
    CHECK(first.pass(100s).empty());
    // A host has several addresses, and the one that refuses is not tried each time.
    Dialogue several;
    several.join();
    several.hears(refusal);
    several.pass(20ms);
    several.hears(ConnectionFailed{.tried = "10.0.0.2: connection refused"});
    several.pass(2s);
    CHECK(any_starts_with(several.hears(refusal), "deliver Refused"));
    // The daemon of the job before is gone, and this one's is there.
    Dialogue early;
    early.join();
    CHECK_FALSE(any_starts_with(early.hears(refusal), "deliver"));
    early.pass(1200ms);
    early.hears(ConnectionOpened{.address = "10.0.0.1", .is_proven = true});
    early.broken();
    early.pass(1s);
    CHECK_FALSE(any_starts_with(early.hears(refusal), "deliver"));
    early.pass(1s);
    CHECK(any_starts_with(early.open(), "send Hello"));
    Dialogue later;
    later.settle_in();
    later.broken();
    later.pass(20ms);
    CHECK_FALSE(any_starts_with(later.hears(refusal), "deliver"));
    CHECK(any_starts_with(later.pass(1s), "connect"));
}

TEST_CASE("a node that has the key before the change, too, comes with that one where the new one is refused") {
    const auto new_hash = [](std::string_view) { return std::string("new"); };
    const auto old_hash = [](std::string_view) { return std::string("old"); };
    const auto with_both = [&] {
        Dialogue talk;
        talk.config.key.secret = new_hash;
        talk.config.older_keys = {{.secret = old_hash, .tls_identity = {}, .tls_key = {}}};
        talk.core.emplace(talk.config);
        talk.join();
        return talk;
    };
    const native::Refused refusal{native::RefusalReason::secret, "no"};
    const auto challenge_of = [](const Dialogue& talk) { return std::get<native::Hello>(talk.last_sent).challenge; };

    auto talk = with_both();
    talk.open();
    CHECK(challenge_of(talk) == "new");
    CHECK(talk.daemon(refusal) == Lines{"disconnect"});
    CHECK(talk.pass(20ms) == Lines{"connect"});
    talk.open();
    CHECK(challenge_of(talk) == "old");
    CHECK(std::get<native::Hello>(talk.last_sent).connection == 1);  // the first one has reached nobody's job
    talk.daemon(native::Challenge{"nonce", ""});
    CHECK(talk.daemon(native::Challenge{"", "old"}).front() == "send Join");
    CHECK(talk.daemon(Dialogue::assigned()) == Lines{"deliver Assigned"});
    // The daemon is started with the new one alone.
    talk.broken();
    talk.pass(20ms);
    talk.open();
    CHECK(challenge_of(talk) == "old");
    CHECK(talk.daemon(refusal).front() == "disconnect a stranger");
    talk.pass(1s);
    talk.open();
    CHECK(challenge_of(talk) == "new");

    auto neither = with_both();
    neither.open();
    neither.daemon(refusal);
    neither.pass(20ms);
    neither.open();
    CHECK(neither.daemon(refusal) == Lines{"deliver Refused"});

    const ConnectionFailed by_tls{.tried = "10.0.0.1: another secret", .reached = ConnectionFailed::Reached::refused};
    auto shaking = with_both();
    CHECK(shaking.hears(by_tls).empty());
    CHECK(shaking.core->key_at() == 1);
    CHECK(shaking.pass(20ms) == Lines{"connect"});
    // Somebody else may have answered to the first key.
    CHECK(shaking.hears(by_tls).empty());
    CHECK(shaking.core->key_at() == 0);
    CHECK(any_starts_with(shaking.pass(1s), "connect"));
    CHECK(refuse(shaking, by_tls) <= 1s);
}

TEST_CASE("a daemon that asks for a secret which this node has not is not served") {
    Dialogue talk;
    talk.join();
    talk.open();
    CHECK(talk.daemon(native::Challenge{"nonce", ""}).front() == "disconnect a stranger");
}

}  // namespace muster::test
