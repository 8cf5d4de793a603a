// One port, three dialects; addresses and ports.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "rendezvous/secret/control_key.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/integration/net/running_daemon.h"
#include "tests/integration/net/tls_socket.h"
#include "tests/support/far_address.h"
#include "tests/support/quiet_port.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

native::Refused refusal_in(const std::string& bytes) {
    native::FrameReader reader(native::Sender::daemon);
    reader.append(bytes);
    const auto message = reader.next();
    REQUIRE((message.has_value() && message.value()));
    return std::get<native::Refused>(*message.value());
}

std::string hello_and_ping() {
    std::string bytes;
    native::Hello hello;
    hello.job = "dialects";
    hello.node = {.host = "here", .pid = 1, .incarnation = 7};
    native::append_frame(bytes, hello);
    native::append_frame(bytes, native::Ping{.sequence = 5, .sent_ns = 11});
    return bytes;
}

}  // namespace

TEST_CASE("the store, HTTP and agents are served on one port at the same time") {
    const RunningDaemon running;
    const auto agent = running.connect();
    const auto store = running.connect();
    const auto browser = running.connect();
    agent.send(hello_and_ping());
    store.send(c10d_bytes::validate + c10d_bytes::set("/k", "v") + c10d_bytes::get("/k"));
    browser.send("GET /healthz HTTP/1.0\r\n\r\n");
    CHECK(store.receive(9) == c10d_bytes::text("v"));
    bool closed = false;
    CHECK(browser.receive_all(closed).ends_with("\r\n\r\nok\n"));
    CHECK(closed);

    native::FrameReader reader(native::Sender::daemon);
    for (std::optional<native::Message> message; !message;) {
        const auto bytes = agent.receive(1);
        REQUIRE(bytes.size() == 1);
        reader.append(bytes);
        auto next = reader.next();
        REQUIRE(next.has_value());
        message = *next;
        if (!message) continue;
        REQUIRE(std::holds_alternative<native::Pong>(*message));
        CHECK(std::get<native::Pong>(*message).sequence == 5);
    }
}

TEST_CASE("a dialect is recognised from its first byte alone, however the bytes are cut") {
    const RunningDaemon running;
    const std::string requests[] = {c10d_bytes::validate + c10d_bytes::ping(), "GET /healthz HTTP/1.1\r\n\r\n",
                                    hello_and_ping()};
    for (const auto& request : requests) {
        const auto socket = running.connect();
        for (const char byte : request) REQUIRE(socket.send(std::string_view(&byte, 1)));
        CHECK(socket.receive(1).size() == 1);
    }
}

TEST_CASE("the status pages exist, others do not, and only GET is answered") {
    const RunningDaemon running;
    CHECK(running.page("/healthz") == "ok\n");
    CHECK(running.page("/status").find("\"jobs\"") != std::string::npos);
    CHECK(running.page("/metrics").find("# TYPE muster_connections gauge\n") != std::string::npos);
    CHECK(running.page("/nothing").find("/healthz") != std::string::npos);
    const auto socket = running.connect();
    socket.send("DELETE /status HTTP/1.1\r\n\r\n");
    CHECK(socket.receive(12) == "HTTP/1.1 405");
}

TEST_CASE(
    "a question for the key is answered when its answer is there, and not once its asker or the daemon has gone") {
    using Answer = std::function<void(unsigned status, std::string body)>;
    std::mutex mutex;
    using Gone = std::shared_ptr<const std::atomic<bool>>;
    std::vector<std::pair<std::string, Answer>> asked;
    std::vector<Gone> gone_of;
    const auto asked_count = [&] {
        const std::lock_guard lock(mutex);
        return asked.size();
    };
    const auto until_asked = [&](std::size_t count) {
        const auto end = std::chrono::steady_clock::now() + 60s;
        while (asked_count() < count && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        REQUIRE(asked_count() == count);
    };
    DaemonConfig config;
    config.listen.ports = {0, 0};
    config.on_key_question = [&](const std::string& source, std::string nonce, Gone gone, Answer answer) {
        CHECK(source == "127.0.0.1");
        const std::lock_guard lock(mutex);
        gone_of.push_back(std::move(gone));
        asked.emplace_back(std::move(nonce), std::move(answer));
    };
    EventLoop loop;
    auto daemon = Daemon::open(loop, std::move(config));
    REQUIRE(daemon.has_value());
    REQUIRE(loop.start_thread().has_value());
    const auto ask = [&](const std::string& request) {
        PlainSocket socket("127.0.0.1", (*daemon)->port());
        REQUIRE(socket.connected());
        socket.send(request);
        return socket;
    };
    bool closed = false;
    {
        const auto served = ask("GET /key?nonce=n1 HTTP/1.0\r\n\r\nmore that nobody reads");
        until_asked(1);
        CHECK(asked[0].first == "n1");
        loop.invoke([&] { asked[0].second(200, "MUNGE:1"); });
        CHECK(served.receive_all(closed).ends_with("\r\n\r\nMUNGE:1"));
        CHECK(closed);
    }
    loop.invoke([&] { asked[0].second(200, "a second time"); });
    {
        const auto gone = ask("GET /key?nonce=n2 HTTP/1.0\r\n\r\n");
        until_asked(2);
        CHECK_FALSE(*gone_of[1]);
    }
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (!*gone_of[1] && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    CHECK(*gone_of[1]);
    CHECK(ask("GET /key?nonce=n3 HTTP/1.1\r\nHost: rebound.example\r\n\r\n")
              .receive_all(closed)
              .starts_with("HTTP/1.1 421 "));
    CHECK(ask("POST /key?nonce=n3 HTTP/1.0\r\n\r\n").receive_all(closed).starts_with("HTTP/1.1 405 "));
    CHECK(ask("GET /key HTTP/1.0\r\n\r\n").receive_all(closed).starts_with("HTTP/1.1 404 "));
    loop.invoke([&] { asked[1].second(200, "to nobody"); });
    const auto last = ask("GET /key?nonce=n4 HTTP/1.0\r\n\r\n");
    until_asked(3);
    daemon->reset();
    loop.invoke([&] { asked[2].second(200, "too late"); });
    CHECK(last.receive_all(closed).empty());
    const RunningDaemon without;
    CHECK(without.page("/key?nonce=n5").starts_with("There are /healthz"));
}

TEST_CASE("IPv4 and IPv6 reach the same daemon") {
    const RunningDaemon running;
    const auto v4 = running.connect("127.0.0.1");
    const PlainSocket v6("::1", running.port());
    if (!v6.connected()) {
        WARN("this host has no IPv6");
        return;
    }
    v4.send(c10d_bytes::validate + c10d_bytes::set("/from", "v4") + c10d_bytes::get("/from"));
    CHECK(v4.receive(10) == c10d_bytes::text("v4"));
    v6.send(c10d_bytes::validate + c10d_bytes::get("/from"));
    CHECK(v6.receive(10) == c10d_bytes::text("v4"));
}

TEST_CASE("a web page of another name cannot read the status through a browser here") {
    DaemonConfig config;
    config.status_hosts = {"monitor.example"};
    const RunningDaemon running(std::move(config));
    const auto status = [&](const std::string& host) {
        const auto socket = running.connect();
        socket.send("GET /status HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
        bool closed = false;
        return socket.receive_all(closed);
    };
    CHECK(status("rebound.example:29400").starts_with("HTTP/1.1 421 "));
    CHECK(status("rebound.example").find("--status-host NAME") != std::string::npos);
    CHECK(status("rebound.example").find("jobs") == std::string::npos);
    for (const auto* own : {"127.0.0.1:29400", "localhost", "monitor.example:80"})
        CHECK(status(own).starts_with("HTTP/1.1 200 "));
}

TEST_CASE("with a secret, other hosts see the status with its token alone") {
    const RunningDaemon running(with_secret());
    const auto get = [&](const std::string& address, const std::string& path, const std::string& header) {
        const auto socket = running.connect(address);
        socket.send("GET " + path + " HTTP/1.0\r\n" + header + "\r\n");
        bool closed = false;
        return socket.receive_all(closed);
    };
    CHECK(get("127.0.0.1", "/status", "").starts_with("HTTP/1.1 200 "));
    const auto far = test::far_address();
    if (far.empty()) return;
    for (const auto* path : {"/status", "/metrics", "/api/v1/jobs/x/events"}) {
        CHECK(get(far, path, "").starts_with("HTTP/1.1 401 "));
        CHECK(get(far, path, "Authorization: Bearer 00\r\n").starts_with("HTTP/1.1 401 "));
        const auto token = status_token(job_key(test_secret, {}));
        const auto answer = get(far, path, "Authorization: Bearer " + token + "\r\n");
        CHECK(answer.starts_with(path[1] == 'a' ? "HTTP/1.1 404 " : "HTTP/1.1 200 "));  // there is no job x
    }
    CHECK(get(far, "/healthz", "").starts_with("HTTP/1.1 200 "));
    // The token of a scraper opens nothing else.
    const auto bearer = "Authorization: Bearer " + metrics_token(job_key(test_secret, {})) + "\r\n";
    CHECK(get(far, "/metrics", bearer).starts_with("HTTP/1.1 200 "));
    for (const auto* path : {"/status", "/api/v1/jobs/x/events", "/metrics/x"})
        CHECK(get(far, path, bearer).starts_with("HTTP/1.1 401 "));
}

TEST_CASE("with a secret, other hosts see the status by TLS with its key, and with no job's") {
    const RunningDaemon running(with_secret());
    const auto far = test::far_address();
    if (far.empty()) return;
    const auto get = [&](const ControlKey& key, const std::string& path) {
        TlsSocket viewer(running.connect(far), key);
        REQUIRE(viewer.is_open());
        viewer.send("GET " + path + " HTTP/1.0\r\n\r\n");
        return viewer.receive_all();
    };
    const auto own = status_key(job_key(test_secret, {}));
    CHECK(get(own, "/status").starts_with("HTTP/1.1 200 "));
    CHECK(get(own, "/metrics").starts_with("HTTP/1.1 200 "));
    CHECK(get(own, "/api/v1/jobs/x/events").starts_with("HTTP/1.1 404 "));  // there is no job x
    const auto job = job_key(test_secret, "dialects");
    CHECK(get(control_key(job, "dialects"), "/status").starts_with("HTTP/1.1 401 "));
    CHECK_FALSE(TlsSocket(running.connect(far), status_key(job)).is_open());
    CHECK_FALSE(TlsSocket(running.connect(far), ControlKey{own.identity, job}).is_open());
}

TEST_CASE("a viewer by TLS with a secret that was replaced views no more") {
    const Secret old_one = test_secret;
    const Secret new_one{.text = "another secret of 16 B", .origin = {}};
    std::atomic<const Secret*> present = &old_one;
    auto config = with_secret();
    config.keys = [&present](std::string_view job) { return std::vector{job_key(*present.load(), job)}; };
    const RunningDaemon running(std::move(config));
    const auto far = test::far_address();
    if (far.empty()) return;
    TlsSocket viewer(running.connect(far), status_key(job_key(old_one, {})));
    REQUIRE(viewer.is_open());
    viewer.send("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    std::string seen;
    while (seen.find("event: jobs") == std::string::npos && seen.size() < 100'000) {
        const auto more = viewer.receive(1);
        REQUIRE_FALSE(more.empty());
        seen += more;
    }
    present = &new_one;
    const auto until = std::chrono::steady_clock::now() + 20s;
    bool ended = false;
    while (!ended && std::chrono::steady_clock::now() < until) ended = viewer.receive(1).empty();
    CHECK(ended);
}

TEST_CASE("the key of the status pages joins no job") {
    const RunningDaemon running(with_secret());
    const auto far = test::far_address();
    if (far.empty()) return;
    TlsSocket viewer(running.connect(far), status_key(job_key(test_secret, {})));
    REQUIRE(viewer.is_open());
    viewer.send(hello_and_ping());
    CHECK(refusal_in(viewer.receive_all()).reason == native::RefusalReason::secret);
}

TEST_CASE("each dialect is served inside TLS, however large what it says") {
    const RunningDaemon running(with_secret());
    const auto connect = [&] { return TlsSocket(running.connect(), job_key(test_secret, "dialects"), "dialects"); };
    auto store = connect();
    REQUIRE(store.is_open());
    const std::string large(5 << 20, 'v');
    store.send(c10d_bytes::validate + c10d_bytes::set("/k", large) + c10d_bytes::get("/k"));
    CHECK(store.receive(8 + large.size()) == c10d_bytes::text(large));
    auto browser = connect();
    browser.send("GET /healthz HTTP/1.0\r\n\r\n");
    CHECK(browser.receive_all().ends_with("\r\n\r\nok\n"));
    CHECK(browser.channel().state() == PskChannel::State::ended);
    auto agent = connect();
    agent.send(hello_and_ping());
    std::string pong;
    native::append_frame(pong, native::Pong{.sequence = 5, .sent_ns = 11, .daemon_ns = 0});
    CHECK(agent.receive(pong.size()).substr(0, 14) == pong.substr(0, 14));
    auto twice = connect();
    twice.send("\x16\x03\x01");  // TLS inside TLS
    CHECK(twice.receive_all().empty());
}

TEST_CASE("the key of one job opens no other") {
    const RunningDaemon running(with_secret());
    TlsSocket other(running.connect(), job_key(test_secret, "another"), "another");
    REQUIRE(other.is_open());
    other.send(hello_and_ping());
    const auto refused = refusal_in(other.receive_all());
    CHECK(refused.reason == native::RefusalReason::secret);
    CHECK(refused.why.find("the key of job 'another'") != std::string::npos);
}

TEST_CASE("with a secret, agents of other hosts are heard inside TLS alone") {
    const auto far = test::far_address();
    if (far.empty()) return;
    const RunningDaemon running(with_secret());
    for (const std::string challenge : {"", "prove it"}) {
        native::Hello hello;
        hello.job = "dialects";
        hello.challenge = challenge;
        std::string bytes;
        native::append_frame(bytes, hello);
        const auto socket = running.connect(far);
        socket.send(bytes);
        bool closed = false;
        const auto refused = refusal_in(socket.receive_all(closed));
        CHECK(closed);
        CHECK(refused.reason == native::RefusalReason::secret);
        CHECK(refused.why.find(challenge.empty() ? "has no secret" : "clear text") != std::string::npos);
    }
    TlsSocket agent(running.connect(far), job_key(test_secret, "dialects"), "dialects");
    agent.send(hello_and_ping());
    CHECK(agent.receive(1) == "\xB5");
}

TEST_CASE("a daemon that is bound to one address answers there and nowhere else") {
    const QuietPort held;  // at 127.0.0.1, where another test could listen otherwise
    DaemonConfig config;
    config.listen = {.address = "127.0.0.2", .ports = {held.number(), held.number()}};
    const RunningDaemon running(std::move(config));
    CHECK(PlainSocket("127.0.0.2", running.port()).connected());
    CHECK_FALSE(PlainSocket("127.0.0.1", running.port()).connected());
}

TEST_CASE("a taken port is an error that names its holder; a range goes on to the next port") {
    const RunningDaemon first;
    EventLoop loop;
    DaemonConfig config;
    config.listen.ports = {first.port(), first.port()};
    const auto second = Daemon::open(loop, config);
    REQUIRE_FALSE(second.has_value());
    CHECK(second.error().code == Errc::already_exists);
    CHECK(second.error().context.find("process " + std::to_string(::getpid())) != std::string::npos);
    if (first.port() > 65'000) return;
    config.listen.ports.last = static_cast<std::uint16_t>(first.port() + 50);
    const auto third = Daemon::open(loop, config);
    REQUIRE(third.has_value());
    CHECK((*third)->port() > first.port());
}
