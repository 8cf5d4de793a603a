// Dialogues with a daemon whose jobs have a secret.
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/ledgers/gate.h"
#include "rendezvous/rounds/server.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

/// Stands in for HMAC-SHA256: as long as both sides have the same key, they agree.
native::KeyedHash hash_with(std::string key) {
    return [key = std::move(key)](std::string_view text) {
        return std::to_string(std::hash<std::string>{}(key + std::string(text)));
    };
}

native::Hello hello_from(Incarnation incarnation, std::string challenge = "agent's nonce") {
    native::Hello hello;
    hello.job = "job";
    hello.node = {"gpu07", 4711, incarnation};
    hello.challenge = std::move(challenge);
    return hello;
}

struct Talk {
    explicit Talk(native::KeyedHash secret, StartHold hold = StartHold::none)
        : server(config(std::move(secret), hold), now) {}

    static ServerConfig config(native::KeyedHash secret, StartHold hold = StartHold::none) {
        ServerConfig config;
        config.start_hold = hold;
        if (secret) config.secret = [secret = std::move(secret)](std::string_view) { return std::vector{secret}; };
        config.secret_seed = "random";
        return config;
    }

    ConnectionId connect(const std::string& from = "10.0.0.1") {
        server.step(ConnectionAccepted{++last, from}, now);
        return last;
    }
    ServerStep say(ConnectionId connection, native::Message message) {
        return server.step(Received{connection, std::move(message)}, now);
    }

    Instant now = Instant(1000s);
    Server server;
    ConnectionId last = 0;
};

template <class Message>
const Message* sent(const ServerStep& step) {
    for (const auto& action : step.actions)
        if (const auto* send = std::get_if<SendTo>(&action))
            if (const auto* message = std::get_if<Message>(&send->message)) return message;
    return nullptr;
}

bool closes(const ServerStep& step) {
    for (const auto& action : step.actions)
        if (std::holds_alternative<CloseConnection>(action)) return true;
    return false;
}

native::Proof proof_for(const native::KeyedHash& hash, const native::Hello& hello, const ServerStep& challenged) {
    return {native::proof_of(hash, native::Prover::agent, hello, sent<native::Challenge>(challenged)->nonce)};
}

}  // namespace

TEST_CASE("who proves to know the secret is let in, and gets the daemon's proof") {
    const auto hash = hash_with("key");
    Talk talk(hash);
    const auto connection = talk.connect();
    const auto hello = hello_from(7);
    const auto challenged = talk.say(connection, hello);
    REQUIRE(sent<native::Challenge>(challenged) != nullptr);
    const auto nonce = sent<native::Challenge>(challenged)->nonce;
    CHECK(sent<native::Challenge>(challenged)->proof.empty());  // not to somebody who has shown nothing
    const auto answered = talk.say(connection, proof_for(hash, hello, challenged));
    REQUIRE(sent<native::Challenge>(answered) != nullptr);
    CHECK(sent<native::Challenge>(answered)->proof == native::proof_of(hash, native::Prover::daemon, hello, nonce));
    CHECK(sent<native::Assigned>(talk.say(connection, native::Join{})) != nullptr);
}

TEST_CASE("the key of one job opens no other job, and an old secret is accepted beside the new one") {
    const auto of_job = [](const char* secret) {
        return [secret](std::string_view job) { return hash_with(cat(secret, " of ", job)); };
    };
    ServerConfig config;
    config.secret_seed = "random";
    config.secret = [of_job](std::string_view job) { return std::vector{of_job("new")(job), of_job("old")(job)}; };
    Talk talk({});
    Server server(config, talk.now);
    ConnectionId last = 0;
    const auto answer_to = [&](const native::KeyedHash& hash) {
        server.step(ConnectionAccepted{++last, "10.0.0.1"}, talk.now);
        const auto hello = hello_from(7);
        const auto challenged = server.step(Received{last, hello}, talk.now);
        const auto nonce = sent<native::Challenge>(challenged)->nonce;
        const auto answered = server.step(Received{last, proof_for(hash, hello, challenged)}, talk.now);
        const auto* own = sent<native::Challenge>(answered);
        if (own != nullptr) CHECK(own->proof == native::proof_of(hash, native::Prover::daemon, hello, nonce));
        return answered;
    };
    for (const auto* secret : {"new", "old"})
        CHECK(sent<native::Challenge>(answer_to(of_job(secret)("job"))) != nullptr);
    for (const auto& wrong : {of_job("new")("another"), of_job("older")("job")}) {
        const auto refused = answer_to(wrong);
        REQUIRE(sent<native::Refused>(refused) != nullptr);
        CHECK(sent<native::Refused>(refused)->why.find("a key of another job than 'job'") != std::string::npos);
    }
}

TEST_CASE("a round has bytes of its own, and they are the same for all of its nodes, whichever key each has") {
    Talk talk({});
    const auto launch = [&](std::string seed) {
        ServerConfig config;
        config.secret_seed = std::move(seed);
        config.secret = [](std::string_view) { return std::vector{hash_with("new"), hash_with("old")}; };
        Server server(config, talk.now);
        std::vector<std::string> told;
        const auto take = [&](const ServerStep& step) {
            for (const auto& action : step.actions)
                if (const auto* send = std::get_if<SendTo>(&action))
                    if (const auto* assigned = std::get_if<native::Assigned>(&send->message))
                        told.push_back(assigned->secret);
        };
        native::Join join;
        join.terms.nodes_min = join.terms.nodes_max = 2;
        join.terms.restarts_max = 1;
        for (const ConnectionId id : {1, 2}) {
            const auto hash = hash_with(id == 1 ? "new" : "old");
            server.step(ConnectionAccepted{id, "10.0.0.1"}, talk.now);
            const auto hello = hello_from(id);
            const auto challenged = server.step(Received{id, hello}, talk.now);
            server.step(Received{id, proof_for(hash, hello, challenged)}, talk.now);
            take(server.step(Received{id, join}, talk.now));
        }
        join.last_round = 0;
        server.step(Received{1, native::WorkersFailed{0, {}}}, talk.now);
        for (const ConnectionId id : {1, 2}) take(server.step(Received{id, join}, talk.now));
        return told;
    };
    const auto first = launch("random");
    REQUIRE(first.size() == 4);  // two rounds of two nodes
    CHECK_FALSE(first[0].empty());
    CHECK(first[0] == first[1]);
    CHECK(first[2] == first[3]);
    CHECK(first[0] != first[2]);
    const auto second = launch("more of it");
    REQUIRE(second.size() == 4);
    CHECK(first[0] != second[0]);  // of another launch
    CHECK(first[2] != second[2]);
}

TEST_CASE("a proof is good for one connection, one agent and one direction") {
    const auto hash = hash_with("key");
    Talk talk(hash);
    const auto hello = hello_from(7);
    const auto first = talk.connect();
    const auto overheard = talk.say(first, hello);
    const auto proof = proof_for(hash, hello, overheard);
    talk.say(first, proof);

    const auto second = talk.connect();
    const auto nonce = sent<native::Challenge>(talk.say(second, hello))->nonce;
    const auto replayed = talk.say(second, proof);
    REQUIRE(sent<native::Refused>(replayed) != nullptr);
    CHECK(sent<native::Refused>(replayed)->reason == native::RefusalReason::secret);
    CHECK(closes(replayed));

    CHECK(native::proof_of(hash, native::Prover::daemon, hello, nonce) !=
          native::proof_of(hash, native::Prover::agent, hello, nonce));
    CHECK(native::proof_of(hash, native::Prover::agent, hello_from(8), nonce) !=
          native::proof_of(hash, native::Prover::agent, hello, nonce));
}

TEST_CASE("nothing counts before the proof") {
    const auto hash = hash_with("key");
    const std::vector<native::Message> messages{native::Join{}, native::AgentDied{"x"}, native::Ping{},
                                                native::Command{1, native::CommandVerb::drain_node, "a", ""}};
    for (const auto& message : messages) {
        Talk talk(hash);
        const auto connection = talk.connect();
        talk.say(connection, hello_from(7));
        const auto answer = talk.say(connection, message);
        REQUIRE(sent<native::Refused>(answer) != nullptr);
        CHECK(sent<native::Refused>(answer)->reason == native::RefusalReason::secret);
        CHECK(talk.server.status_json(talk.now).find("gpu07") == std::string::npos);
    }
}

TEST_CASE("a missing or wrong secret is refused with a reason and logged with its source") {
    Talk talk(hash_with("key"));
    const auto none = talk.say(talk.connect("10.9.9.9"), hello_from(7, ""));
    CHECK(sent<native::Refused>(none)->why.find("gpu07 (pid 4711) has no secret") == 0);
    REQUIRE(none.why.size() == 1);
    CHECK(none.why[0].text.find("refused from 10.9.9.9, job 'job'") == 0);
    const auto connection = talk.connect("10.9.9.9");
    const auto hello = hello_from(7);
    const auto wrong = talk.say(connection, proof_for(hash_with("other"), hello, talk.say(connection, hello)));
    CHECK(sent<native::Refused>(wrong)->why.find("gpu07 (pid 4711) has another secret") == 0);
    CHECK(talk.say(connection, native::Join{}).actions.empty());  // closed: not read any more
}

TEST_CASE("many wrong secrets of one address are neither answered nor logged for some time") {
    const auto hash = hash_with("key");
    Talk talk(hash);
    const auto wrong = [&] {
        const auto connection = talk.connect("10.9.9.9");
        const auto hello = hello_from(7);
        return talk.say(connection, proof_for(hash_with("other"), hello, talk.say(connection, hello)));
    };
    for (std::uint32_t i = 0; i < Gate::wrong_max; ++i) CHECK(sent<native::Refused>(wrong()) != nullptr);
    for (const auto& step : {wrong(), talk.say(talk.connect("10.9.9.9"), hello_from(7, ""))}) {
        CHECK(closes(step));
        CHECK(sent<native::Refused>(step) == nullptr);  // one whose secret is mended tries again
        CHECK(step.why.empty());
    }
    talk.now += Gate::memory;
    CHECK(sent<native::Refused>(wrong()) != nullptr);
}

TEST_CASE("a right secret is let in from an address with many wrong ones") {
    const auto hash = hash_with("key");
    Talk talk(hash);
    // Behind one address translation: a job of many nodes, and one with another secret that tries again and again.
    for (std::uint32_t i = 0; i < 5 * Gate::wrong_max; ++i) {
        talk.say(talk.connect("10.9.9.9"), hello_from(6, ""));
        const auto connection = talk.connect("10.9.9.9");
        const auto hello = hello_from(7 + i);
        const auto challenged = talk.say(connection, hello);
        REQUIRE(sent<native::Challenge>(challenged) != nullptr);
        CHECK(sent<native::Challenge>(talk.say(connection, proof_for(hash, hello, challenged))) != nullptr);
    }
}

TEST_CASE("a daemon without a secret does not take an agent that has one for one of its own") {
    Talk talk({});
    const auto answer = talk.say(talk.connect(), hello_from(7));
    CHECK(sent<native::Refused>(answer)->why.find("this rendezvous has no secret, and gpu07 (pid 4711) has one") == 0);
    const auto proof = talk.connect();
    talk.say(proof, hello_from(7, ""));
    CHECK(sent<native::Refused>(talk.say(proof, native::Proof{"x"})) != nullptr);
}

TEST_CASE("commands are taken with the secret or from the job's agents, and from nobody else") {
    const auto hash = hash_with("key");
    const native::Command drain{1, native::CommandVerb::drain_node, "gpu07", "x"};
    Talk open({});
    const auto stranger = open.connect();
    open.say(stranger, hello_from(9, ""));
    CHECK(sent<native::Refused>(open.say(stranger, drain)) != nullptr);

    Talk locked(hash);
    const auto person = locked.connect();
    const auto hello = hello_from(9);
    locked.say(person, proof_for(hash, hello, locked.say(person, hello)));
    const auto answer = locked.say(person, drain);
    REQUIRE(sent<native::CommandAnswer>(answer) != nullptr);
    CHECK(sent<native::CommandAnswer>(answer)->text.starts_with("this daemon has no job 'job'; GET /status"));
}

TEST_CASE("proofs are compared whole, and an empty one is never right") {
    CHECK(same_digest("abc", "abc"));
    for (const auto* other : {"", "ab", "abd", "abcd"}) CHECK_FALSE(same_digest("abc", other));
    CHECK_FALSE(same_digest("", ""));
}

TEST_CASE("an agent of another protocol version is refused with both numbers, before anything else of it is read") {
    Talk talk({});
    auto hello = hello_from(7);
    hello.version = 1;
    const auto connection = talk.connect();
    const auto answer = talk.say(connection, hello);
    const auto* refused = sent<native::Refused>(answer);
    REQUIRE(refused != nullptr);
    CHECK(refused->reason == native::RefusalReason::version);
    CHECK(refused->why.find(cat("protocol version ", native::protocol_version, " and the agent version 1")) !=
          std::string::npos);
    CHECK(closes(answer));
}

TEST_CASE("who has proved the job's key by TLS is let in at once, and for this job alone") {
    Talk talk(hash_with("key"));
    const auto connect = [&](std::string job) {
        talk.server.step(
            ConnectionAccepted{
                .connection = ++talk.last, .peer = "10.0.0.1", .proven_job = std::move(job), .is_local = false},
            talk.now);
        return talk.last;
    };
    const auto agent = connect("job");
    CHECK(talk.say(agent, hello_from(7, "")).actions.empty());
    CHECK(sent<native::Assigned>(talk.say(agent, native::Join{})) != nullptr);
    const auto stranger = talk.say(connect("another"), hello_from(8, ""));
    REQUIRE(sent<native::Refused>(stranger) != nullptr);
    CHECK(sent<native::Refused>(stranger)->reason == native::RefusalReason::secret);
    CHECK(sent<native::Refused>(stranger)->why.find("'another'") != std::string::npos);
    CHECK(closes(stranger));
}

TEST_CASE("the word of a round's only node counts at once with the secret, also where spares stand by") {
    for (const bool spare_first : {true, false}) {
        INFO(spare_first);
        Talk talk(hash_with("key"), StartHold::always);
        const auto connect = [&](Incarnation incarnation) {
            talk.server.step(ConnectionAccepted{.connection = ++talk.last, .peer = "10.0.0.1", .proven_job = "job"},
                             talk.now);
            talk.say(talk.last, hello_from(incarnation, ""));
            return talk.last;
        };
        const auto spare = connect(8);
        if (spare_first) talk.say(spare, native::Join{});
        const auto member = connect(7);
        native::Resume resume;
        resume.round = resume.as_assigned.round = 0;
        resume.as_assigned.group_world_size = 1;
        talk.say(member, std::move(resume));
        if (!spare_first) talk.say(spare, native::Join{});
        const auto ended = talk.say(member, native::WorkersSucceeded{.round = 0});
        REQUIRE(sent<native::JobEnded>(ended) != nullptr);
        CHECK(sent<native::JobEnded>(ended)->outcome == native::JobOutcome::succeeded);
    }
}

TEST_CASE("the terms of a round that runs replace those of an agent that a new daemon heard first, with the secret") {
    Talk talk(hash_with("key"), StartHold::always);
    const auto say = [&](Incarnation incarnation, native::Message message) {
        talk.server.step(ConnectionAccepted{.connection = ++talk.last, .peer = "10.0.0.1", .proven_job = "job"},
                         talk.now);
        talk.say(talk.last, hello_from(incarnation, ""));
        return talk.say(talk.last, std::move(message));
    };
    native::Join other;
    other.terms.restarts_max = 5;
    say(8, other);
    native::Resume resume;
    resume.round = resume.as_assigned.round = 0;
    resume.as_assigned.group_world_size = 1;
    const auto step = say(7, std::move(resume));
    REQUIRE(sent<native::Refused>(step) != nullptr);
    CHECK(sent<native::Refused>(step)->why.find("the restart budget is") == 0);
    CHECK(talk.server.status_json(talk.now).find("\"running\"") != std::string::npos);
}

TEST_CASE("agents of other hosts are heard in clear text only where there is no secret") {
    for (const bool is_local : {true, false}) {
        Talk talk(hash_with("key"));
        talk.server.step(ConnectionAccepted{.connection = 1, .peer = "10.0.0.1", .is_local = is_local}, talk.now);
        const auto answered = talk.say(1, hello_from(7));
        CHECK((sent<native::Challenge>(answered) != nullptr) == is_local);
        CHECK((sent<native::Refused>(answered) != nullptr) == !is_local);
    }
    Talk open({});
    open.server.step(ConnectionAccepted{.connection = 1, .peer = "10.0.0.1", .is_local = false}, open.now);
    CHECK(open.say(1, hello_from(7, "")).actions.empty());
}
