// Agents' clients against a real daemon, both over real sockets.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include <atomic>
#include <functional>

#include "rendezvous/client/client.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/servers/round_store.h"
#include "tests/integration/net/running_daemon.h"
#include "tests/support/quiet_port.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

constexpr auto patience = 20s;

native::Join join_of_two() {
    native::Join join;
    join.terms = {.nodes_min = 2, .nodes_max = 2, .last_call_ms = 100};
    join.addresses = {"127.0.0.1"};
    join.store_port = 1;
    join.entry = "train.py";
    return join;
}

class Agent {
  public:
    Agent(boost::asio::io_context& io, Endpoint endpoint, Incarnation incarnation, Duration join_timeout = 600s,
          ClientConfig more = {})
        : client(io, config(std::move(more), std::move(endpoint), incarnation, join_timeout)) {
        client.on_message = [this](native::Message message) { messages.push_back(std::move(message)); };
        client.on_fenced = [this](std::string why) { fenced = why; };
        client.on_lost = [this](std::string why) { lost = why; };
        client.on_progress = [this](std::string line) { progress.push_back(std::move(line)); };
    }

    template <class T>
    [[nodiscard]] const T* find() const {
        for (const auto& message : messages) {
            if (const auto* found = std::get_if<T>(&message)) return found;
        }
        return nullptr;
    }

    std::vector<native::Message> messages;
    std::string fenced;
    std::string lost;
    std::vector<std::string> progress;
    Client client;  // last: its callbacks use the above

  private:
    static ClientConfig config(ClientConfig config, Endpoint endpoint, Incarnation incarnation, Duration join_timeout) {
        config.endpoint = std::move(endpoint);
        config.job = "job";
        config.node = {.host = "node" + std::to_string(incarnation), .pid = 1, .incarnation = incarnation};
        config.join_timeout = join_timeout;
        return config;
    }
};

template <class Condition>
bool run_until(boost::asio::io_context& io, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        io.restart();
        if (std::chrono::steady_clock::now() > end) return false;
        io.run_one_for(100ms);
    }
    return true;
}

std::unique_ptr<Daemon> open_daemon(EventLoop& loop, std::uint16_t port, DaemonConfig config = {},
                                    const std::string& address = {}) {
    config.listen = {.address = address, .ports = {port, port}};
    auto opened = Daemon::open(loop, std::move(config));
    REQUIRE(opened.has_value());
    return std::move(*opened);
}

DaemonConfig with_secret(const std::string& secret) {
    return muster::with_secret({.text = secret, .origin = {}});
}

ClientConfig over_tls(const std::string& secret) {
    ClientConfig config;
    auto control = control_key(job_key({.text = secret, .origin = {}}, "job"), "job");
    config.key.tls_identity = std::move(control.identity);
    config.key.tls_key = std::move(control.key);
    config.tls_on_loopback = true;
    return config;
}

}  // namespace

TEST_CASE("two agents join over real sockets, are assigned, succeed, and the job is forgotten") {
    EventLoop loop;
    std::atomic<int> forgotten = 0;
    DaemonConfig config;
    config.on_job_forgotten = [&](const std::string&) { ++forgotten; };
    const auto daemon = open_daemon(loop, 0, std::move(config));
    loop.start_thread();
    boost::asio::io_context io;
    Agent first(io, {"127.0.0.1", daemon->port()}, 1);
    Agent second(io, {"localhost", daemon->port()}, 2);
    first.client.submit(join_of_two());
    second.client.submit(join_of_two());
    REQUIRE(run_until(io, [&] { return first.find<native::Assigned>() && second.find<native::Assigned>(); }));
    CHECK(first.find<native::Assigned>()->group_world_size == 2);
    CHECK(first.find<native::Assigned>()->group_rank != second.find<native::Assigned>()->group_rank);
    CHECK(daemon->status_json().find("\"job\"") != std::string::npos);

    first.client.submit(native::WorkersSucceeded{});
    second.client.submit(native::WorkersSucceeded{});
    REQUIRE(run_until(io, [&] { return first.find<native::JobEnded>() && second.find<native::JobEnded>(); }));
    CHECK(first.find<native::JobEnded>()->outcome == native::JobOutcome::succeeded);
    // While the daemon is kept from reading, no flush may end.
    Standstill reads_nothing(loop);
    bool flushed[2] = {false, false};
    first.client.submit(native::EndAcknowledged{});
    first.client.close(15s, [&] { flushed[0] = true; });
    second.client.submit(native::EndAcknowledged{});
    second.client.close(15s, [&] { flushed[1] = true; });
    io.restart();
    io.run_for(50ms);
    CHECK_FALSE((flushed[0] || flushed[1]));
    reads_nothing.end();
    CHECK(run_until(io, [&] { return flushed[0] && flushed[1]; }));
    CHECK(forgotten == 1);
    CHECK(daemon->idle());
}

TEST_CASE("a daemon that starts later than its agents is found") {
    boost::asio::io_context io;
    const QuietPort held;
    const auto port = held.number();
    Agent first(io, {"127.0.0.1", port}, 1);
    Agent second(io, {"127.0.0.1", port}, 2);
    first.client.submit(join_of_two());
    second.client.submit(join_of_two());
    io.run_for(200ms);  // some refused attempts
    EventLoop loop;
    const auto daemon = open_daemon(loop, port);
    loop.start_thread();
    CHECK(run_until(io, [&] { return first.find<native::Assigned>() && second.find<native::Assigned>(); }));
    CHECK(first.lost.empty());
}

TEST_CASE("agents come back to a daemon that was restarted, and their round goes on") {
    boost::asio::io_context io;
    EventLoop loop;
    const QuietPort held;
    const auto port = held.number();
    auto daemon = open_daemon(loop, port);
    loop.start_thread();
    ClientConfig quiet;
    quiet.lease = 50s;  // a heartbeat every ten seconds
    Agent first(io, {"127.0.0.1", port}, 1, 600s, quiet);
    Agent second(io, {"127.0.0.1", port}, 2, 600s, quiet);
    auto join = join_of_two();
    join.terms.lease_ms = 50'000;
    first.client.submit(join);
    second.client.submit(join);
    REQUIRE(run_until(io, [&] { return first.find<native::Assigned>() && second.find<native::Assigned>(); }));
    daemon.reset();
    const auto restarted = std::chrono::steady_clock::now();
    DaemonConfig config;
    config.server.start_hold = StartHold::always;
    daemon = open_daemon(loop, port, std::move(config));
    first.client.submit(native::WorkersSucceeded{});
    second.client.submit(native::WorkersSucceeded{});
    REQUIRE(run_until(io, [&] { return first.find<native::JobEnded>() && second.find<native::JobEnded>(); }));
    CHECK(first.find<native::JobEnded>()->outcome == native::JobOutcome::succeeded);
    CHECK(first.fenced.empty());
    // By the connection's end, not by a heartbeat that stayed away.
    CHECK(std::chrono::steady_clock::now() - restarted < 30s);
}

TEST_CASE("an address at which a stranger answers is left for the others that are known, or that the name has now") {
    EventLoop loop;
    const std::string there = "127.0.0.2";
    const auto daemon = open_daemon(loop, 0, {}, "127.0.0.1");
    const auto port = daemon->port();
    loop.start_thread();
    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor stranger(io, {boost::asio::ip::make_address(there), port});
    std::function<void()> greet = [&] {
        stranger.async_accept([&](const boost::system::error_code& failure, boost::asio::ip::tcp::socket socket) {
            if (failure) return;
            boost::system::error_code ignored;
            boost::asio::write(socket, boost::asio::buffer(std::string("SSH-2.0-other\r\n")), ignored);
            greet();
        });
    };
    greet();
    ClientConfig both;
    both.known_addresses = there + ",127.0.0.1";
    Agent first(io, {"no-such-host.invalid", port}, 1, 600s, both);
    ClientConfig old;  // its name leads elsewhere by now
    old.known_addresses = there;
    Agent second(io, {"localhost", port}, 2, 600s, old);
    first.client.submit(join_of_two());
    second.client.submit(join_of_two());
    CHECK(run_until(io, [&] { return first.find<native::Assigned>() && second.find<native::Assigned>(); }));
}

TEST_CASE("agents with the job's key join, succeed and leave over TLS") {
    EventLoop loop;
    const auto daemon = open_daemon(loop, 0, with_secret("ours"));
    loop.start_thread();
    boost::asio::io_context io;
    // No hash for proofs: in clear text they would be refused.
    Agent first(io, {"127.0.0.1", daemon->port()}, 1, 600s, over_tls("ours"));
    Agent second(io, {"localhost", daemon->port()}, 2, 600s, over_tls("ours"));
    auto join = join_of_two();
    join.arguments = std::string(500, 'a');
    first.client.submit(join);
    second.client.submit(join);
    REQUIRE(run_until(io, [&] { return first.find<native::Assigned>() && second.find<native::Assigned>(); }));
    first.client.submit(native::WorkersSucceeded{});
    second.client.submit(native::WorkersSucceeded{});
    REQUIRE(run_until(io, [&] { return first.find<native::JobEnded>() && second.find<native::JobEnded>(); }));
    CHECK(first.find<native::JobEnded>()->outcome == native::JobOutcome::succeeded);
    first.client.submit(native::EndAcknowledged{});
    second.client.submit(native::EndAcknowledged{});
    int flushed = 0;
    first.client.close(patience, [&] { ++flushed; });
    second.client.close(patience, [&] { ++flushed; });
    CHECK(run_until(io, [&] { return flushed == 2; }));
    CHECK(run_until(io, [&] { return daemon->idle(); }));
}

TEST_CASE("agents come back over TLS to a daemon that was started again") {
    EventLoop loop;
    const QuietPort held;
    const auto port = held.number();
    auto daemon = open_daemon(loop, port, with_secret("ours"), "127.0.0.1");
    loop.start_thread();
    boost::asio::io_context io;
    Agent first(io, {"127.0.0.1", port}, 1, 600s, over_tls("ours"));
    Agent second(io, {"127.0.0.1", port}, 2, 600s, over_tls("ours"));
    first.client.submit(join_of_two());
    second.client.submit(join_of_two());
    REQUIRE(run_until(io, [&] { return first.find<native::Assigned>() && second.find<native::Assigned>(); }));
    daemon.reset();
    daemon = open_daemon(loop, port, with_secret("ours"), "127.0.0.1");
    first.client.submit(native::WorkersSucceeded{});
    second.client.submit(native::WorkersSucceeded{});
    CHECK(run_until(io, [&] { return first.find<native::JobEnded>() && second.find<native::JobEnded>(); }));
}

TEST_CASE("a node with another secret, or with one that the daemon has not, is refused in one sentence") {
    const bool has_key = GENERATE(true, false);
    EventLoop loop;
    const auto daemon = open_daemon(loop, 0, has_key ? with_secret("ours") : DaemonConfig{});
    loop.start_thread();
    boost::asio::io_context io;
    Agent agent(io, {"127.0.0.1", daemon->port()}, 1, 600s, over_tls("theirs"));
    agent.client.submit(join_of_two());
    REQUIRE(run_until(io, [&] { return agent.find<native::Refused>() != nullptr; }));
    const auto& refused = *agent.find<native::Refused>();
    CHECK(refused.reason == native::RefusalReason::secret);
    CHECK(refused.why.find(has_key ? "another secret than this node" : "the rendezvous has no secret") !=
          std::string::npos);
    CHECK(refused.why.starts_with("job 'job' at 127.0.0.1:"));
}

TEST_CASE("a port that closes at the first word of TLS is named, and tried until the time is up") {
    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor port(io, {boost::asio::ip::address_v4::loopback(), 0});
    std::function<void()> accept = [&] {
        port.async_accept([&](const boost::system::error_code& failure, boost::asio::ip::tcp::socket) {
            if (!failure) accept();
        });
    };
    accept();
    Agent agent(io, {"127.0.0.1", port.local_endpoint().port()}, 1, 4s, over_tls("ours"));
    agent.client.submit(join_of_two());
    REQUIRE(run_until(io, [&] { return !agent.lost.empty(); }));
    INFO(agent.lost);
    CHECK(agent.lost.find("no TLS is spoken there") != std::string::npos);
}

TEST_CASE("agents of a round that come upon a daemon of another secret go to the next address of their own") {
    const bool speaks_tls = GENERATE(false, true);
    EventLoop loop;
    const QuietPort held;
    const auto port = held.number();
    auto daemon = open_daemon(loop, port, with_secret("ours"), "127.0.0.1");
    loop.start_thread();
    boost::asio::io_context io;
    ClientConfig known = speaks_tls ? over_tls("ours") : ClientConfig{};
    known.known_addresses = "127.0.0.2,127.0.0.1";
    known.key.secret = control_hash(job_key({.text = "ours", .origin = {}}, "job"));
    known.secret_seed = "seed";
    Agent first(io, {"no-such-host.invalid", port}, 1, 600s, known);
    Agent second(io, {"no-such-host.invalid", port}, 2, 600s, known);
    first.client.submit(join_of_two());
    second.client.submit(join_of_two());
    REQUIRE(run_until(io, [&] { return first.find<native::Assigned>() && second.find<native::Assigned>(); }));
    const auto theirs = open_daemon(loop, port, with_secret("theirs"), "127.0.0.2");
    daemon.reset();
    daemon = open_daemon(loop, port, with_secret("ours"), "127.0.0.1");
    first.client.submit(native::WorkersSucceeded{});
    second.client.submit(native::WorkersSucceeded{});
    CHECK(run_until(io, [&] { return first.find<native::JobEnded>() && second.find<native::JobEnded>(); }));
    CHECK(first.fenced.empty());
}

TEST_CASE("a name that does not resolve ends in RendezvousLost, which says the name") {
    boost::asio::io_context io;
    Agent agent(io, {"no-such-host.invalid", 29400}, 1, 300ms);
    agent.client.submit(join_of_two());
    REQUIRE(run_until(io, [&] { return !agent.lost.empty(); }));
    CHECK(agent.lost.find("no-such-host.invalid") != std::string::npos);
}

TEST_CASE("a port where nobody listens ends in RendezvousLost, which says what was tried") {
    boost::asio::io_context io;
    const QuietPort port;
    Agent agent(io, {"127.0.0.1", port.number()}, 1, 4s);
    agent.client.submit(join_of_two());
    REQUIRE(run_until(io, [&] { return !agent.lost.empty(); }));
    INFO(agent.lost);
    CHECK(agent.lost.find("127.0.0.1") != std::string::npos);
    CHECK(agent.lost.find("refused") != std::string::npos);
}

TEST_CASE("a client that is destroyed in the middle of anything calls nobody back") {
    EventLoop loop;
    const auto daemon = open_daemon(loop, 0);
    loop.start_thread();
    boost::asio::io_context io;
    for (const auto pause : {0ms, 1ms, 5ms, 20ms}) {
        for (const std::string host : {"127.0.0.1", "localhost", "no-such-host.invalid"}) {
            Agent agent(io, {host, daemon->port()}, 77);
            agent.client.submit(join_of_two());
            io.restart();
            io.run_for(pause);
        }
    }
    io.restart();
    io.run_for(50ms);
    SUCCEED();
}
