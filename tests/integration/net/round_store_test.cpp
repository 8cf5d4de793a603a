// The workers' store of one round: fresh, on a port of its own, gone with the round; peers may ask there.
#include "rendezvous/servers/round_store.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <mutex>
#include <thread>

#include "rendezvous/secret/job_key.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/integration/net/plain_socket.h"
#include "tests/integration/net/tls_socket.h"
#include "tests/support/catch.h"
#include "tests/support/quiet_port.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

std::unique_ptr<RoundStore> open_store(EventLoop& loop, RoundStoreConfig config = {}) {
    auto opened = RoundStore::open(loop, std::move(config));
    REQUIRE(opened.has_value());
    return std::move(*opened);
}

std::string question() {
    std::string bytes;
    native::append_frame(bytes, native::PeerAsk{.job = "job", .round = 3, .group_rank = 1});
    return bytes;
}

}  // namespace

TEST_CASE("when the round is over its clients see the end at once, and the port is closed") {
    EventLoop loop;
    loop.start_thread();
    auto store = open_store(loop);
    const auto port = store->port();
    const PlainSocket worker("127.0.0.1", port);
    worker.send(c10d_bytes::validate + c10d_bytes::wait("/never"));
    const PlainSocket other("127.0.0.1", port);
    other.send(c10d_bytes::validate + c10d_bytes::ping());
    REQUIRE(other.receive(4) == c10d_bytes::pong);
    store.reset();
    CHECK(worker.closed_by_peer());
    CHECK(other.closed_by_peer());
    CHECK_FALSE(PlainSocket("127.0.0.1", port).connected());
}

TEST_CASE("ports with one budget of memory take no more together than it has") {
    EventLoop loop;
    loop.start_thread();
    RoundStoreConfig config;
    config.limits.memory = std::make_shared<MemoryBudget>(std::size_t{3} << 20);
    const auto first = open_store(loop, config);
    const auto second = open_store(loop, config);
    const std::string value(std::size_t{2} << 20, 'v');
    const auto takes = [&](const RoundStore& store) {
        const PlainSocket worker("127.0.0.1", store.port());
        worker.send(c10d_bytes::validate + c10d_bytes::set("/k", value) + c10d_bytes::ping());
        return worker.receive(4) == c10d_bytes::pong;
    };
    CHECK(takes(*first));
    CHECK_FALSE(takes(*second));
    CHECK(takes(*open_store(loop)));
}

TEST_CASE("a key of one round cannot be read in the next, also not on the same port") {
    EventLoop loop;
    loop.start_thread();
    const QuietPort held;
    const auto port = held.number();
    RoundStoreConfig config;
    config.listen.ports = {port, port};
    auto store = open_store(loop, config);
    {
        const PlainSocket worker("127.0.0.1", port);
        worker.send(c10d_bytes::validate + c10d_bytes::set("/k", "old") + c10d_bytes::get("/k"));
        REQUIRE(worker.receive(11) == c10d_bytes::text("old"));
    }
    store.reset();
    store = open_store(loop, std::move(config));
    const PlainSocket worker("127.0.0.1", port);
    worker.send(c10d_bytes::validate + c10d_bytes::get("/k"));
    CHECK(worker.receive(8) == c10d_bytes::text(""));
}

TEST_CASE("a range of ports gives the first free one, and names the holder when none is free") {
    EventLoop loop;
    const auto first = open_store(loop);
    RoundStoreConfig config;
    config.listen.ports = {first->port(), first->port()};
    const auto second = RoundStore::open(loop, config);
    REQUIRE_FALSE(second.has_value());
    CHECK(second.error().code == Errc::already_exists);
    CHECK(second.error().context.find("held by process") != std::string::npos);
}

TEST_CASE("a peer's question is answered on the owner's thread, and the connection ends") {
    EventLoop loop;
    loop.start_thread();
    boost::asio::io_context io;
    RoundStoreConfig config;
    std::thread::id asked_on;
    config.answer = [&](const native::PeerAsk& ask) {
        asked_on = std::this_thread::get_id();
        return native::PeerAnswer{.round = ask.round, .leader_lost = true};
    };
    config.post = [&](std::function<void()> work) { boost::asio::post(io, std::move(work)); };
    const auto store = open_store(loop, std::move(config));
    const PlainSocket peer("127.0.0.1", store->port());
    peer.send(question());
    const auto work = boost::asio::make_work_guard(io);
    CHECK(io.run_one_for(60s) == 1);
    bool closed = false;
    native::FrameReader reader(native::Sender::peer);
    reader.append(peer.receive_all(closed));
    CHECK(closed);
    const auto answer = reader.next();
    REQUIRE(answer.has_value());
    REQUIRE(answer->has_value());
    CHECK(std::get<native::PeerAnswer>(**answer) == native::PeerAnswer{.round = 3, .leader_lost = true});
    CHECK(asked_on == std::this_thread::get_id());
}

TEST_CASE("a question that outlives the store is dropped without a call") {
    EventLoop loop;
    loop.start_thread();
    std::mutex mutex;
    std::vector<std::function<void()>> posted;
    RoundStoreConfig config;
    int calls = 0;
    config.answer = [&](const native::PeerAsk&) { return ++calls, native::PeerAnswer{}; };
    config.post = [&](std::function<void()> work) {
        const std::lock_guard lock(mutex);
        posted.push_back(std::move(work));
    };
    auto store = open_store(loop, std::move(config));
    const PlainSocket peer("127.0.0.1", store->port());
    peer.send(question());
    const auto asked = [&] {
        const std::lock_guard lock(mutex);
        return !posted.empty();
    };
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (!asked() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    REQUIRE(asked());
    store.reset();
    for (const auto& work : posted) work();
    CHECK(calls == 0);
    CHECK(peer.closed_by_peer());
}

TEST_CASE("what is no question is refused on the peer port") {
    EventLoop loop;
    loop.start_thread();
    const auto store = open_store(loop);
    std::string hello;
    native::append_frame(hello, native::Hello{});
    for (const std::string& bytes :
         {hello, question() /* nobody answers here */, std::string("GET / HTTP/1.1\r\n\r\n")}) {
        const PlainSocket socket("127.0.0.1", store->port());
        socket.send(bytes);
        CHECK(socket.closed_by_peer());
    }
}

TEST_CASE("before its round is known a store keeps its clients waiting, and then serves them all") {
    EventLoop loop;
    loop.start_thread();
    RoundStoreConfig config;
    config.waits = true;
    const auto store = open_store(loop, std::move(config));
    const PlainSocket worker("127.0.0.1", store->port());
    REQUIRE(worker.connected());
    worker.send(c10d_bytes::validate + c10d_bytes::ping());
    loop.invoke([] {});
    char byte = 0;
    CHECK(::recv(worker.fd(), &byte, 1, MSG_DONTWAIT) == -1);  // neither answered nor closed
    REQUIRE(store->serve({.store = true, .clients = {"203.0.113.9"}}).has_value());
    // Of this host, whatever the round's addresses are.
    CHECK(worker.receive(4) == c10d_bytes::pong);
    REQUIRE(store->serve({.store = false, .clients = {}}).has_value());  // again: nothing changes
    const PlainSocket late("127.0.0.1", store->port());
    late.send(c10d_bytes::validate + c10d_bytes::ping());
    CHECK(late.receive(4) == c10d_bytes::pong);
}

TEST_CASE("a node that has not the round's store answers peers and nobody else") {
    EventLoop loop;
    loop.start_thread();
    boost::asio::io_context io;
    RoundStoreConfig config;
    config.waits = true;
    config.answer = [](const native::PeerAsk& ask) { return native::PeerAnswer{.round = ask.round}; };
    config.post = [&](std::function<void()> work) { boost::asio::post(io, std::move(work)); };
    const auto store = open_store(loop, std::move(config));
    REQUIRE(store->serve({.store = false, .clients = {}}).has_value());
    const PlainSocket worker("127.0.0.1", store->port());
    worker.send(c10d_bytes::validate + c10d_bytes::ping());
    bool closed = false;
    CHECK(worker.receive_all(closed).empty());
    CHECK(closed);
    const PlainSocket peer("127.0.0.1", store->port());
    peer.send(question());
    const auto work = boost::asio::make_work_guard(io);
    CHECK(io.run_one_for(60s) == 1);
    CHECK_FALSE(peer.receive_all(closed).empty());
    CHECK(closed);
}

TEST_CASE("a question that nobody of the round can have asked is closed without an answer") {
    EventLoop loop;
    loop.start_thread();
    boost::asio::io_context io;
    RoundStoreConfig config;
    config.answer = [](const native::PeerAsk&) { return std::nullopt; };
    config.post = [&](std::function<void()> work) { boost::asio::post(io, std::move(work)); };
    const auto store = open_store(loop, std::move(config));
    const PlainSocket peer("127.0.0.1", store->port());
    peer.send(question());
    const auto work = boost::asio::make_work_guard(io);
    CHECK(io.run_one_for(60s) == 1);
    bool closed = false;
    CHECK(peer.receive_all(closed).empty());
    CHECK(closed);
}

TEST_CASE("viewers of log files come with their key, by TLS and HTTP; without log files nobody speaks HTTP") {
    EventLoop loop;
    loop.start_thread();
    const auto newer = logs_key(std::string(32, 'n')), older = logs_key(std::string(32, 'o'));
    const std::string question = "GET /logs HTTP/1.0\r\n\r\n";
    RoundStoreConfig config;
    config.logs.keys = {newer, older};
    config.logs.streams = [](const HttpRequest& request, Connection& connection) -> std::unique_ptr<HttpStream> {
        if (request.target != "/logs" || !connection.key_identity().starts_with(logs_label)) return nullptr;
        connection.send(http_stream_head("text/plain") + "lines");
        connection.finish("all lines are sent");
        return std::make_unique<HttpStream>();
    };
    config.logs.pages = [](const HttpRequest&, Instant) { return HttpPage{.status = 403, .body = "no"}; };
    const auto store = open_store(loop, std::move(config));
    const auto viewer = [&](const std::string& name, const std::string& with) {
        return TlsSocket(PlainSocket("127.0.0.1", store->port()), ControlKey{.identity = name, .key = with});
    };
    for (const auto& accepted : {newer, older}) {
        auto known = viewer(accepted.identity, accepted.key);
        REQUIRE(known.is_open());
        known.send(question);
        const auto answer = known.receive_all();
        CHECK(answer.starts_with("HTTP/1.1 200 "));
        CHECK(answer.ends_with("\r\n\r\nlines"));
    }
    CHECK_FALSE(viewer(newer.identity, older.key).is_open());
    CHECK_FALSE(viewer("logs", newer.key).is_open());
    CHECK_FALSE(viewer("store", newer.key).is_open());
    bool closed = false;
    const PlainSocket stranger("127.0.0.1", store->port());
    stranger.send(question);
    CHECK(stranger.receive_all(closed).starts_with("HTTP/1.1 403 "));

    const auto without = open_store(loop);
    const PlainSocket asker("127.0.0.1", without->port());
    asker.send(question);
    CHECK(asker.receive_all(closed).empty());
    CHECK(closed);
}

namespace {

/// A store whose viewers get a first line, and more when the test sends it.
struct WatchedStore {
    ControlKey key = logs_key(std::string(32, 'k'));
    std::vector<Connection*> connections;
    EventLoop loop;
    std::unique_ptr<RoundStore> store;

    WatchedStore() {
        loop.start_thread();
        RoundStoreConfig config;
        config.logs.keys = {key};
        config.logs.streams = [this](const HttpRequest&, Connection& connection) {
            connection.send(http_stream_head("text/plain") + "first ");
            connections.push_back(&connection);
            return std::make_unique<HttpStream>();
        };
        config.logs.pages = [](const HttpRequest&, Instant) { return HttpPage{.status = 403, .body = "no"}; };
        store = open_store(loop, std::move(config));
    }
    [[nodiscard]] PlainSocket connect() const { return {"127.0.0.1", store->port()}; }
    [[nodiscard]] TlsSocket view(PlainSocket socket) const { return {std::move(socket), key}; }
    void ask(TlsSocket& viewer) const {
        viewer.send("GET /logs HTTP/1.0\r\n\r\n");
        CHECK(viewer.receive(first.size()) == first);
    }
    void finish(std::size_t which, std::string_view last) {
        loop.invoke([&] {
            connections.at(which)->send(last);
            connections.at(which)->finish("all lines are sent");
        });
    }
    /// Ready when the viewers have been sent everything.
    std::future<void> when_read() {
        auto read = std::make_shared<std::promise<void>>();
        store->when_read([read] { read->set_value(); });
        return read->get_future();
    }

    const std::string first = http_stream_head("text/plain") + "first ";
};

}  // namespace

TEST_CASE("when the round is over a half request is closed, a broken viewer harms nobody, and the others read on") {
    WatchedStore watched;
    const auto half = watched.connect();
    half.send("HELP\r\n");
    auto plain = watched.connect();
    const int broken = plain.fd();
    auto breaks = watched.view(std::move(plain)), reads = watched.view(watched.connect());
    watched.ask(breaks);
    watched.ask(reads);
    CHECK(watched.store->retire());
    CHECK(half.closed_by_peer());
    half.send("no request\r\n\r\n");
    const std::string no_record(64, 'x');
    REQUIRE(::send(broken, no_record.data(), no_record.size(), MSG_NOSIGNAL) > 0);
    char byte = 0;
    while (::recv(broken, &byte, 1, 0) > 0) {
    }
    auto read = watched.when_read();
    CHECK(read.wait_for(0s) == std::future_status::timeout);
    watched.finish(1, "last");
    CHECK(reads.receive_all() == "last");
    CHECK(read.wait_for(60s) == std::future_status::ready);
}

TEST_CASE("a viewer that does not read holds up the end no longer than its second, and none that is not there") {
    WatchedStore watched;
    auto stopped = watched.view(watched.connect());
    watched.ask(stopped);
    const std::string more(8 << 20, 'x');
    watched.loop.invoke([&] { watched.connections.front()->limit_unsent(2 * more.size()); });
    watched.finish(0, more);
    CHECK(watched.store->retire());
    CHECK(watched.when_read().wait_for(60s) == std::future_status::ready);

    WatchedStore alone;
    const auto half = alone.connect();
    half.send("GET");
    alone.loop.invoke([] {});
    CHECK_FALSE(alone.store->retire());
    CHECK(alone.when_read().wait_for(60s) == std::future_status::ready);
}

TEST_CASE("a viewer that reads slowly is waited for as long as it takes something each second") {
    using Clock = std::chrono::steady_clock;
    WatchedStore watched;
    constexpr int buffer_bytes = 64 << 10;
    auto slow = watched.view(PlainSocket("127.0.0.1", watched.store->port(), buffer_bytes));
    watched.ask(slow);
    const std::string more(32 << 20, 'x');
    watched.loop.invoke([&] {
        auto& connection = *watched.connections.front();
        ::setsockopt(connection.fd(), SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
        connection.limit_unsent(2 * more.size());
    });
    watched.finish(0, more);
    CHECK(watched.store->retire());
    auto last_read = Clock::now();
    const auto read = watched.when_read();
    // More than all buffers between the two: the store has to write for each piece.
    constexpr std::size_t piece_bytes = 1 << 20;
    bool is_over = false;
    for (const auto end = last_read + 1500ms; !is_over && Clock::now() < end;) {
        CHECK(slow.receive(piece_bytes).size() == piece_bytes);
        const auto has_read = Clock::now();
        is_over = read.wait_for(100ms) == std::future_status::ready;
        // A machine that stood still for a second made this a viewer that takes nothing.
        CHECK((!is_over || Clock::now() - last_read > 900ms));
        last_read = has_read;
    }
    CHECK(slow.receive_all().ends_with('x'));
    CHECK(read.wait_for(60s) == std::future_status::ready);
}

TEST_CASE("an answer to a peer goes out although the round ends in the same turn") {
    EventLoop loop;
    loop.start_thread();
    boost::asio::io_context io;
    RoundStoreConfig config;
    std::unique_ptr<RoundStore> store;
    config.answer = [](const native::PeerAsk& ask) { return native::PeerAnswer{.round = ask.round}; };
    config.post = [&](std::function<void()> work) {
        boost::asio::post(io, [&, work = std::move(work)] {
            // Both are posted to the loop before it takes the first.
            loop.invoke([&] {
                work();
                loop.post([&] { store->retire(); });
            });
        });
    };
    store = open_store(loop, std::move(config));
    const PlainSocket peer("127.0.0.1", store->port());
    peer.send(question());
    const auto work = boost::asio::make_work_guard(io);
    CHECK(io.run_one_for(60s) == 1);
    bool closed = false;
    CHECK_FALSE(peer.receive_all(closed).empty());
    CHECK(closed);
}
