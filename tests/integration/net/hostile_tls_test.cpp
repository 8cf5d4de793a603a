// Peers that begin TLS and mean no good: limits hold, and everybody else is served.
#include <deque>
#include <vector>

#include "tests/integration/net/running_daemon.h"
#include "tests/integration/net/tls_socket.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

DaemonConfig keyed() {
    auto config = with_secret();
    config.limits.handshake_timeout = 60s;  // longer than a socket waits; a test about it sets its own
    return config;
}

TlsSocket connect_tls(const RunningDaemon& running) {
    return TlsSocket(running.connect(), job_key(test_secret, "job"), "job");
}

/// A record that claims 16 KiB, and most of it.
const std::string half_record =
    std::string("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", 11) + std::string(15'000, 'x');

}  // namespace

TEST_CASE("half a TLS handshake, and a whole one with nothing after it, are closed at the deadline") {
    auto config = keyed();
    config.limits.handshake_timeout = 2s;
    const RunningDaemon running(std::move(config));
    const auto half = running.connect();
    half.send(half_record);
    auto silent = connect_tls(running);
    CHECK(silent.is_open());
    running.require_prompt_service();
    CHECK(half.closed_by_peer());
    CHECK(silent.receive_all().empty());
    CHECK(running.metric("muster_connections_refused_total") == 2);
    CHECK(running.metric("muster_memory_bytes") < 64 * 1024);
}

TEST_CASE("a flood of TLS handshakes stays within the memory budget, and the others are served") {
    auto config = keyed();
    config.limits.memory_bytes_max = std::size_t{8} << 20;
    const RunningDaemon running(std::move(config));
    const auto before = resident_bytes();
    std::vector<PlainSocket> flood;
    std::size_t refused = 0;
    for (int i = 0; i < 600; ++i) {
        flood.push_back(running.connect());
        if (!flood.back().send(half_record)) ++refused;
    }
    running.require_prompt_service();
    CHECK(running.metric("muster_memory_bytes") <= static_cast<double>(std::size_t{8} << 20));
    CHECK(running.metric("muster_connections_refused_total") > 300);
    CHECK(resident_bytes() < before + (64u << 20) + sanitizer_bytes);
}

TEST_CASE("beside a store that is full an agent still finishes its TLS handshake") {
    auto config = keyed();
    config.limits.memory_bytes_max = std::size_t{8} << 20;
    const RunningDaemon running(std::move(config));
    const auto worker = running.connect();
    worker.send(c10d_bytes::validate);
    const std::string value(8 * 1024, 'v');
    for (int i = 0; worker.send(c10d_bytes::set(cat("/k", i), value));) ++i;
    CHECK(worker.closed_by_peer());
    CHECK(running.metric("muster_store_bytes") > 6 << 20);
    auto agent = connect_tls(running);
    CHECK(agent.is_open());
    agent.send("GET /healthz HTTP/1.0\r\n\r\n");
    CHECK(agent.receive_all().ends_with("ok\n"));
}

TEST_CASE("where a table is full, who has finished the handshake keeps its place, and who has not gives way") {
    auto config = keyed();
    config.limits.connections_max = 4;
    const RunningDaemon running(std::move(config));
    auto member = connect_tls(running);
    REQUIRE(member.is_open());
    const auto half = running.connect();
    half.send(half_record.substr(0, 8));
    std::vector<PlainSocket> others;
    for (int i = 0; i < 3; ++i) others.push_back(running.connect());
    CHECK(half.closed_by_peer());
    member.send("GET /healthz HTTP/1.0\r\n\r\n");
    CHECK(member.receive_all().ends_with("ok\n"));
}

TEST_CASE("who has finished the handshake and says no more takes nobody's place in a full table") {
    auto config = keyed();
    config.limits.connections_max = 4;
    const RunningDaemon running(std::move(config));
    std::deque<TlsSocket> idle;
    for (int i = 0; i < 4; ++i) {
        idle.emplace_back(running.connect(), job_key(test_secret, "job"), "job");
        REQUIRE(idle.back().is_open());
    }
    auto later = connect_tls(running);
    CHECK(later.is_open());
    CHECK(idle.front().receive_all().empty());  // the oldest has given way
    later.send("GET /healthz HTTP/1.0\r\n\r\n");
    CHECK(later.receive_all().ends_with("ok\n"));
}

TEST_CASE("who asks for much over TLS and reads nothing does not fill the memory") {
    const RunningDaemon running(keyed());
    auto greedy = connect_tls(running);
    greedy.send(c10d_bytes::validate + c10d_bytes::set("/k", std::string(8 << 20, 'v')) + c10d_bytes::ping());
    REQUIRE(greedy.receive(4) == c10d_bytes::pong);
    const auto before = resident_bytes();
    std::string gets;
    for (int i = 0; i < 40; ++i) gets += c10d_bytes::get("/k");
    greedy.send(gets);
    running.require_prompt_service();
    CHECK(running.metric("muster_unsent_bytes") > 0);
    CHECK(resident_bytes() < before + (64u << 20) + sanitizer_bytes);
    // And gets all of it when it reads.
    const auto all = greedy.receive(40 * ((std::size_t{8} << 20) + 8));
    CHECK(all.size() == 40 * ((std::size_t{8} << 20) + 8));
}

TEST_CASE("a peer that cuts TLS anywhere harms nobody") {
    const RunningDaemon running(keyed());
    const auto control = control_key(job_key(test_secret, "job"), "job");
    const PskChannel client(PskContext::client(control.identity, control.key));
    const std::string first(client.output());
    for (std::size_t size = 1; size <= first.size(); size += 7) {
        const auto socket = running.connect();
        socket.send(first.substr(0, size));
        ::shutdown(socket.fd(), SHUT_WR);
        CHECK(socket.closed_by_peer());
    }
    running.require_prompt_service();
}

TEST_CASE("who ends TLS hears the daemon's end, and so knows that its last message was read") {
    const RunningDaemon running(keyed());
    auto peer = connect_tls(running);
    peer.send(c10d_bytes::validate + c10d_bytes::ping());
    REQUIRE(peer.receive(4) == c10d_bytes::pong);
    peer.channel().close();
    CHECK(peer.receive_all().empty());
    CHECK(peer.channel().state() == PskChannel::State::ended);
}
