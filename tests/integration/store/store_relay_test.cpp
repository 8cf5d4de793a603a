// Clients of a node's relay against a real store: what they see is what the store's own clients see.
#include "rendezvous/servers/store_relay.h"

#include <poll.h>

#include <algorithm>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/servers/round_store.h"
#include "rendezvous/store_client/store_client.h"
#include "rendezvous/wire/c10d/relay.h"
#include "tests/integration/net/plain_socket.h"
#include "tests/support/catch.h"
#include "tests/support/quiet_port.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

struct RelayedStore {
    /// With the config's key the store has a door, and the relay comes through it.
    explicit RelayedStore(StoreRelayConfig config_ = {})
        : store(open_store(loop, config_.key, held.number())), config(std::move(config_)) {
        config.store = {"127.0.0.1", store->port()};
        relay = StoreRelay::open(loop, config).value();
        loop.start_thread();
    }
    ~RelayedStore() {
        relay.reset();
        store.reset();
    }
    static std::unique_ptr<RoundStore> open_store(EventLoop& loop, const std::string& key, std::uint16_t port = 0) {
        RoundStoreConfig config;
        config.listen.ports = {port, port};
        config.waits = true;
        auto store = RoundStore::open(loop, std::move(config)).value();
        REQUIRE(store->serve({.clients = {}, .key = key}).has_value());
        return store;
    }
    [[nodiscard]] static StoreClient client_of(std::uint16_t port) {
        return StoreClient::connect({"127.0.0.1", port}, {.connect_timeout = 60s, .timeout = 60s}).value();
    }
    [[nodiscard]] StoreClient client() const { return client_of(relay->port()); }
    /// A client of the relay that waits: the answer to the PING behind shows that the store knows it.
    [[nodiscard]] PlainSocket waiting(const std::string& key) const {
        PlainSocket socket("127.0.0.1", relay->port());
        socket.send(c10d_bytes::validate + c10d_bytes::wait(key) + c10d_bytes::ping());
        REQUIRE(socket.receive(4) == c10d_bytes::pong);
        return socket;
    }

    const QuietPort held;  // for a later store as well
    EventLoop loop;
    std::unique_ptr<RoundStore> store;
    StoreRelayConfig config;
    std::unique_ptr<StoreRelay> relay;
};

void push_to_queue(std::uint16_t port) {
    const PlainSocket socket("127.0.0.1", port);
    socket.send(c10d_bytes::validate + c10d_bytes::push("/queue", "x") + c10d_bytes::ping());
    CHECK(socket.receive(4) == c10d_bytes::pong);
}

const std::string round_key(32, 'k');

/// In clear text and by TLS.
StoreRelayConfig each_way() {
    StoreRelayConfig config;
    config.key = GENERATE(std::string(), round_key);
    return config;
}

/// A port of which nobody accepts, unless the test does.
struct ListeningSocket {
    explicit ListeningSocket(int backlog) : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(::listen(fd.get(), backlog) == 0);
        REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
        port = ntohs(address.sin_port);
    }
    FileDescriptor fd;
    std::uint16_t port = 0;
};

}  // namespace

TEST_CASE("Through a relay clients meet those of the store, and a wait that is late leaves its client usable") {
    RelayedStore node(each_way());
    auto a = node.client();
    auto b = node.client();
    auto direct = RelayedStore::client_of(node.store->port());
    CHECK(a.server_is_ours());
    CHECK(a.wait({"never"}, 50ms).error().code == Errc::timed_out);
    const auto parked = node.waiting("/key");
    std::thread setter([&] { CHECK(direct.set("key", "value").has_value()); });
    CHECK(a.get("key").value() == "value");
    setter.join();
    CHECK(parked.receive(1) == std::string(1, '\0'));
    CHECK(b.add("n", 2).value() == 2);
    CHECK(direct.add("n", 3).value() == 5);
    CHECK(a.get("n").value() == "5");
}

TEST_CASE("Large values go through a relay both ways, of several clients at once") {
    RelayedStore node(each_way());
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i)
        clients.emplace_back([&node, i] {
            auto client = node.client();
            const auto key = "large" + std::to_string(i);
            const std::string value(8 * 1024 * 1024, static_cast<char>('a' + i));
            CHECK(client.set(key, value).has_value());
            CHECK(client.get(key).value() == value);
        });
    for (auto& client : clients) client.join();
}

TEST_CASE("A client that dies behind its relay waits no more: it takes no wake-up from others") {
    RelayedStore node(each_way());
    { const auto dead = node.waiting("/queue"); }
    auto alive = node.waiting("/queue");  // the relay has seen the end before: it came first
    push_to_queue(node.relay->port());
    CHECK(alive.receive(1) == std::string(1, '\0'));
}

TEST_CASE("The store's end is the end of every client of a relay; a later store is reached again") {
    RelayedStore node;
    auto before = node.client();
    const auto parked = node.waiting("/never");
    const PlainSocket silent("127.0.0.1", node.relay->port());
    node.store.reset();
    CHECK(parked.closed_by_peer());
    CHECK(before.add("n", 1).has_error());
    node.store = RelayedStore::open_store(node.loop, {}, node.held.number());
    CHECK(node.client().add("n", 1).value() == 1);
    silent.send(c10d_bytes::validate + c10d_bytes::ping());
    CHECK(silent.receive(4) == c10d_bytes::pong);
}

TEST_CASE("Where the store cannot be reached, a relay closes its clients at once") {
    RelayedStore node;
    node.store.reset();
    const PlainSocket client("127.0.0.1", node.relay->port());
    client.send(c10d_bytes::validate + c10d_bytes::ping());
    CHECK(client.closed_by_peer());
    CHECK(StoreRelay::open(node.loop, {.store = {"no-address", 1}, .limits = {}}).error().code ==
          Errc::invalid_argument);
}

TEST_CASE("A relay with another key, or with one for a store without a door, closes its clients at once") {
    EventLoop loop;
    const auto store_key = GENERATE(std::string(), round_key);
    const auto store = RelayedStore::open_store(loop, store_key);
    StoreRelayConfig config;
    config.store = {"127.0.0.1", store->port()};
    config.key = std::string(32, 'x');
    const auto relay = StoreRelay::open(loop, config).value();
    loop.start_thread();
    const PlainSocket client("127.0.0.1", relay->port());
    client.send(c10d_bytes::validate + c10d_bytes::ping());
    CHECK(client.closed_by_peer());
}

TEST_CASE("A relay that ends closes its clients, and the store forgets them") {
    RelayedStore node;
    const auto parked = node.waiting("/queue");
    node.relay.reset();
    CHECK(parked.closed_by_peer());
    const PlainSocket waiter("127.0.0.1", node.store->port());
    waiter.send(c10d_bytes::validate + c10d_bytes::wait("/queue") + c10d_bytes::ping());
    REQUIRE(waiter.receive(4) == c10d_bytes::pong);
    push_to_queue(node.store->port());
    CHECK(waiter.receive(1) == std::string(1, '\0'));
}

TEST_CASE("A relay closes a client that sends nothing, except beside a live one") {
    StoreRelayConfig config;
    config.limits.handshake_timeout = 100ms;
    RelayedStore node(config);
    CHECK(PlainSocket("127.0.0.1", node.relay->port()).closed_by_peer());
    auto live = node.client();
    const PlainSocket companion("127.0.0.1", node.relay->port());
    const auto deadline = std::chrono::steady_clock::now() + 200ms;
    while (std::chrono::steady_clock::now() < deadline) CHECK(live.add("n", 1).has_value());
    companion.send(c10d_bytes::validate + c10d_bytes::ping());
    CHECK(companion.receive(4) == c10d_bytes::pong);
}

TEST_CASE("A relay whose store's host does not answer closes its clients at its own deadline") {
    EventLoop loop;
    loop.start_thread();
    const ListeningSocket full(0);
    const PlainSocket fills("127.0.0.1", full.port);
    StoreRelayConfig config;
    config.store = {"127.0.0.1", full.port};
    config.dial_timeout = 100ms;
    const auto relay = StoreRelay::open(loop, config).value();
    const PlainSocket client("127.0.0.1", relay->port());
    client.send(c10d_bytes::validate + c10d_bytes::ping());
    CHECK(client.closed_by_peer());
}

TEST_CASE("A relay that has used up its client numbers connects to the store anew") {
    StoreRelayConfig config;
    config.client_id_max = 2;
    RelayedStore node(config);
    const auto first = node.waiting("/never");
    const auto second = node.waiting("/never");
    auto third = node.client();
    CHECK(third.add("n", 1).value() == 1);
    CHECK(first.closed_by_peer());
    CHECK(second.closed_by_peer());
}

TEST_CASE("A client that reads no answers is not read either") {
    RelayedStore node;
    auto setter = node.client();
    CHECK(setter.set("v", std::string(8 * 1024 * 1024, 'v')).has_value());
    CHECK(setter.wait({"v"}, 60s).has_value());  // the store has it
    const PlainSocket client("127.0.0.1", node.relay->port(), 4096);
    std::string requests = c10d_bytes::validate;
    for (int i = 0; i < 8; ++i) requests += c10d_bytes::get("/v");
    client.send(requests);
    const auto more = c10d_bytes::set("/k", std::string(64 * 1024, 'k'));
    bool is_blocked = false;
    std::string rest;
    for (std::size_t sent = 0; !is_blocked && sent < (64U << 20);) {
        if (rest.empty()) rest = more;
        pollfd writable{.fd = client.fd(), .events = POLLOUT, .revents = 0};
        is_blocked = ::poll(&writable, 1, 1'000) == 0;
        if (is_blocked) break;
        const auto count = ::send(client.fd(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EAGAIN) continue;
        REQUIRE(count > 0);
        rest.erase(0, static_cast<std::size_t>(count));
        sent += static_cast<std::size_t>(count);
    }
    CHECK(is_blocked);
}

TEST_CASE("Many clients that speak at once do not grow a relay whose store does not read; all comes when it reads") {
    const ListeningSocket store(1);
    EventLoop loop;
    StoreRelayConfig config;
    config.store = {"127.0.0.1", store.port};
    const auto relay = StoreRelay::open(loop, config).value();
    std::vector<PlainSocket> clients;
    std::size_t sent_bytes = 0;
    const std::string piece = c10d_bytes::validate + std::string(64 * 1024, 'x');
    for (int i = 0; i < 300; ++i) {
        clients.emplace_back("127.0.0.1", relay->port());
        const auto count = ::send(clients.back().fd(), piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        REQUIRE(count > 0);
        sent_bytes += static_cast<std::size_t>(count);
    }
    REQUIRE(sent_bytes > (16U << 20));
    loop.start_thread();  // now every client has bytes ready
    std::size_t held_most = 0;
    const auto look = [&] {
        const auto held = relay->held_bytes();
        held_most = std::max(held_most, held);
        return held;
    };
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (look() <= (4U << 20) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    for (int turn = 0; turn < 100; ++turn) look();
    CHECK(held_most > (4U << 20));
    CHECK(held_most < (6U << 20));

    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(store.fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const FileDescriptor upstream(::accept4(store.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(upstream.valid());
    ::setsockopt(upstream.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    c10d::RelayReader frames;
    std::string handshake(c10d::relay_handshake().size(), '\0');
    REQUIRE(::recv(upstream.get(), handshake.data(), handshake.size(), MSG_WAITALL) ==
            static_cast<ssize_t>(handshake.size()));
    std::vector<char> buffer(256 * 1024);
    for (std::size_t come_bytes = 0; come_bytes < sent_bytes;) {
        const auto count = ::recv(upstream.get(), buffer.data(), buffer.size(), 0);
        REQUIRE(count > 0);
        std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
        while (const auto one = frames.next(bytes)) come_bytes += one->bytes.size();
    }
}
