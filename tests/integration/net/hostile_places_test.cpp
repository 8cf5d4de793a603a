// Peers that take places: the limits per source and of the whole port, and who gives way.
#include <vector>

#include "rendezvous/base/text/text.h"
#include "tests/integration/net/asking_peers.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

DaemonConfig patient() {
    DaemonConfig config;
    config.limits.handshake_timeout = 60s;  // longer than a socket waits
    return config;
}

}  // namespace

TEST_CASE("connections beyond the quota are closed at once, whatever they speak, and a freed place can be taken") {
    auto config = patient();
    config.limits.connections_max = 8;
    const RunningDaemon running(std::move(config));
    std::vector<PlainSocket> taken;
    for (std::uint64_t i = 0; i < 8; ++i) {
        taken.push_back(running.connect());
        taken.back().send(i % 2 == 0 ? c10d_bytes::validate + c10d_bytes::ping() : agent_bytes(i, 1, cat("job ", i)));
        REQUIRE(taken.back().receive(1).size() == 1);
    }
    CHECK(is_turned_away(running));
    taken.pop_back();
    CHECK(serves_again(running));
}

TEST_CASE("one source address cannot take the places of the others, whatever jobs it makes up") {
    // A round of one node is made up as easily as a job without one.
    for (const std::uint32_t nodes : {100u, 1u}) {
        INFO(nodes);
        auto config = patient();
        config.listen.local_users = LocalUsers::all;  // else all of these are our own
        config.limits.unproven_per_source_max = 6;
        const RunningDaemon running(std::move(config));
        std::vector<PlainSocket> taken;
        for (std::uint64_t i = 0; i < 3; ++i) {
            taken.push_back(running.connect());
            taken.back().send(agent_bytes(i, nodes, cat("made up ", i)));
            REQUIRE(taken.back().receive(1).size() == 1);
        }
        for (int i = 0; i < 3; ++i) {
            taken.push_back(running.connect());
            taken.back().send(c10d_bytes::validate + c10d_bytes::ping());
            REQUIRE(taken.back().receive(4) == c10d_bytes::pong);
        }
        CHECK(is_turned_away(running));
        const PlainSocket other("::1", running.port());
        other.send(c10d_bytes::validate + c10d_bytes::ping());
        CHECK(other.receive(4) == c10d_bytes::pong);
        taken.pop_back();
        CHECK(serves_again(running));
    }
}

TEST_CASE("agents of a round of several addresses do not count for theirs, and each makes room for its workers") {
    auto config = patient();
    config.listen.local_users = LocalUsers::all;
    config.limits.unproven_per_source_max = 2;
    config.limits.unproven_per_agent = 3;
    const RunningDaemon running(std::move(config));
    std::vector<PlainSocket> taken;
    for (std::uint64_t i = 0; i < 2; ++i) {
        taken.push_back(running.connect());
        taken.back().send(agent_bytes(i, 3));
    }
    const PlainSocket third("::1", running.port());
    third.send(agent_bytes(2, 3));
    for (const auto& agent : taken) REQUIRE(agent.receive(100).size() == 100);  // more than a Pong: the assignment
    for (int i = 0; i < 2 + 2 * 3; ++i) {
        INFO(i);
        taken.push_back(running.connect());
        taken.back().send(c10d_bytes::validate + c10d_bytes::ping());
        REQUIRE(taken.back().receive(4) == c10d_bytes::pong);
    }
    CHECK(is_turned_away(running));
}

TEST_CASE("in a full table the oldest connection that has not joined gives way, and no agent or store client does") {
    auto config = patient();
    config.limits.connections_max = 4;
    const RunningDaemon running(std::move(config));
    const auto agent = running.connect();
    agent.send(agent_bytes(1, 1, "running"));
    REQUIRE(agent.receive(100).size() == 100);
    const auto waiting = running.connect();
    waiting.send(agent_bytes(1));
    REQUIRE(waiting.receive(1).size() == 1);
    const auto client = running.connect();
    client.send(c10d_bytes::validate + c10d_bytes::ping());
    REQUIRE(client.receive(4) == c10d_bytes::pong);
    const auto oldest = running.connect();
    const auto late = running.connect();
    late.send(agent_bytes(2));
    CHECK(late.receive(1).size() == 1);
    CHECK(oldest.closed_by_peer());
    // Nobody is left who has not joined: the oldest agent of a job without a round is next, and tries again.
    const auto later = running.connect();
    later.send(agent_bytes(3));
    CHECK(later.receive(1).size() == 1);
    CHECK(waiting.closed_by_peer());
    client.send(c10d_bytes::ping());
    CHECK(client.receive(4) == c10d_bytes::pong);
    std::string ping;
    native::append_frame(ping, native::Ping{});
    agent.send(ping);
    CHECK(agent.receive(1).size() == 1);
}
