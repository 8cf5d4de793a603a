// The blocking client against a real store over loopback, and against servers that misbehave.
#include "rendezvous/store_client/store_client.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <optional>
#include <thread>

#include "rendezvous/servers/round_store.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

struct RunningStore {
    RunningStore() : store(RoundStore::open(loop, {}).value()) { loop.start_thread(); }
    ~RunningStore() { store.reset(); }
    [[nodiscard]] Endpoint endpoint(std::string host = "127.0.0.1") const { return {std::move(host), store->port()}; }
    [[nodiscard]] StoreClient client() const {
        return StoreClient::connect(endpoint(), {.connect_timeout = 60s, .timeout = 60s}).value();
    }

    EventLoop loop;
    std::unique_ptr<RoundStore> store;
};

/// A listening socket that accepts and says what the test wants, or one at whose port nobody listens.
class FakeServer {
  public:
    explicit FakeServer(bool listens = true) : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        REQUIRE(::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), size) == 0);
        if (listens) REQUIRE(::listen(descriptor_, 16) == 0);
        REQUIRE(::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
        port_ = ntohs(address.sin_port);
    }
    ~FakeServer() { ::close(descriptor_); }
    [[nodiscard]] Endpoint endpoint() const { return {"127.0.0.1", port_}; }
    [[nodiscard]] int accept() const { return ::accept(descriptor_, nullptr, nullptr); }

  private:
    int descriptor_;
    std::uint16_t port_ = 0;
};

bool read_exactly(int descriptor, std::size_t size) {
    std::string buffer(size, '\0');
    return ::recv(descriptor, buffer.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

/// A client's second connection, as a server takes it that ends the first one at its PING.
int accept_without_ping(const FakeServer& server) {
    const int first = server.accept();
    read_exactly(first, 5 + 5);
    ::close(first);
    const int second = server.accept();
    read_exactly(second, 5 + 1 + 8 + 8 + 15);
    ::send(second, "\1", 1, 0);
    return second;
}

}  // namespace

TEST_CASE("Every operation works over a socket, and knows our server") {
    RunningStore store;
    auto client = store.client();
    CHECK(client.server_is_ours());
    CHECK(client.address() == "127.0.0.1");
    CHECK(client.set("k", "v").has_value());
    CHECK(client.get("k").value() == "v");
    CHECK(client.add("n", 5).value() == 5);
    CHECK(client.check({"k", "n"}).value());
    CHECK_FALSE(client.check({"k", "missing"}).value());
    CHECK(client.set("a", "1").has_value());
    CHECK(client.set("b", "").has_value());
    CHECK(client.multi_get({"a", "b"}).value() == std::vector<std::string>{"1", ""});
    CHECK(client.wait({"a"}).has_value());
    CHECK(client.delete_key("a").value());
    CHECK_FALSE(client.delete_key("a").value());
    const std::string large(8 * 1024 * 1024, 'L');
    CHECK(client.set("large", large).has_value());
    CHECK(client.get("large").value() == large);
}

TEST_CASE("A name that has an IPv6 address, too, is connected to") {
    RunningStore store;
    auto client = StoreClient::connect(store.endpoint("localhost"), {.connect_timeout = 60s});
    REQUIRE(client.has_value());
    CHECK(client->add("n", 1).value() == 1);
}

TEST_CASE("A wait that times out says so, and the client goes on") {
    RunningStore store;
    auto client = store.client();
    for (const auto& failure : {client.wait({"never"}, 30ms).error(), client.get("never", 30ms).error()}) {
        CHECK(failure.code == Errc::timed_out);
        CHECK(failure.context.find("127.0.0.1 port ") != std::string::npos);
    }
    CHECK(client.add("n", 1).value() == 1);
}

TEST_CASE("A store that stands still loses no client whose wait ends meanwhile") {
    RunningStore store;
    auto client = store.client();
    std::promise<void> stands, goes_on;
    store.loop.post([&] {
        stands.set_value();
        goes_on.get_future().wait();
    });
    stands.get_future().wait();
    CHECK(client.get("never", 30ms).error().code == Errc::timed_out);
    const auto late = client.set("k", "v", 30ms);
    goes_on.set_value();
    REQUIRE_FALSE(late.has_value());
    CHECK(late.error().code == Errc::timed_out);
    CHECK(late.error().context.find("has not answered in time") != std::string::npos);
    CHECK(client.set("k", "v").has_value());
    CHECK(client.get("k").value() == "v");
}

TEST_CASE("A waiting get ends when another client sets the key") {
    RunningStore store;
    auto waiting = store.client();
    auto setting = store.client();
    std::thread setter([&] { setting.set("k", "at last").value(); });
    CHECK(waiting.get("k").value() == "at last");
    setter.join();
}

TEST_CASE("What is too large is refused here, and the connection is not lost by it") {
    RunningStore store;
    auto client = store.client();
    CHECK(client.set("k", std::string(8 * 1024 * 1024 + 1, 'x')).error().code == Errc::limit_exceeded);
    CHECK(client.set(std::string(8 * 1024, 'k'), "").error().code == Errc::limit_exceeded);
    CHECK_FALSE(client.check({"k"}).value());
}

TEST_CASE("When the store goes away the call fails, and every later one with the same reason") {
    auto store = std::make_unique<RunningStore>();
    auto client = store->client();
    store.reset();
    const auto first = client.get("k", 60s).error();
    CHECK(first.code == Errc::peer_closed);
    CHECK(client.add("n", 1, 60s).error().code == Errc::peer_closed);
}

TEST_CASE("Nobody there: the error lists what was tried, at the deadline") {
    const FakeServer nobody(false);
    const auto started = std::chrono::steady_clock::now();
    const auto client = StoreClient::connect(nobody.endpoint(), {.connect_timeout = 6s});
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::unreachable);
    CHECK(client.error().context.find("127.0.0.1: Connection refused") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - started < 60s);
}

TEST_CASE("A server that closes on PING is greeted again without it") {
    const FakeServer server;
    std::thread serving([&] {
        const int second = accept_without_ping(server);
        read_exactly(second, 1);
        ::close(second);
    });
    auto client = StoreClient::connect(server.endpoint(), {.connect_timeout = 60s});
    serving.detach();
    REQUIRE(client.has_value());
    CHECK_FALSE(client->server_is_ours());
}

TEST_CASE("A key that comes just before the deadline costs no connection to a server that takes two requests for it") {
    const FakeServer server;
    constexpr auto timeout = 200ms;
    constexpr std::size_t request_bytes = 1 + 8 + 8 + 2;  // WAIT and GET of "/k" alike
    std::promise<void> connected, came;
    std::thread serving([&] {
        const int second = accept_without_ping(server);
        connected.get_future().wait();
        ::send(second, "\0", 1, 0);
        came.set_value();
        read_exactly(second, 2 * request_bytes);
        std::this_thread::sleep_for(timeout);
        ::send(second, "\5\0\0\0\0\0\0\0value", 8 + 5, MSG_NOSIGNAL);
        read_exactly(second, 1);
        ::close(second);
    });
    std::optional<StoreClient> client = StoreClient::connect(server.endpoint(), {.connect_timeout = 60s}).value();
    connected.set_value();
    came.get_future().wait();  // the end of the wait is there before it begins
    const auto got = client->get("k", timeout);
    const auto later = client->set("n", "");
    client.reset();
    serving.join();
    REQUIRE(got.has_value());
    CHECK(*got == "value");
    CHECK(later.has_value());
}

TEST_CASE("After a request without an answer the store is lost, which no caller takes for a wait that timed out") {
    const FakeServer server;
    std::promise<void> over;
    std::thread serving([&] {
        const int second = accept_without_ping(server);
        over.get_future().wait();
        ::close(second);
    });
    auto client = StoreClient::connect(server.endpoint(), {.connect_timeout = 60s}).value();
    const auto first = client.add("n", 1, 50ms);
    const auto later = client.get("k", 60s);
    over.set_value();
    serving.join();
    REQUIRE(first.has_error());
    CHECK(first.error().code == Errc::timed_out);
    REQUIRE(later.has_error());
    CHECK(later.error().code == Errc::unreachable);
    CHECK(later.error().context.find("no answer to ADD in time") != std::string::npos);
}

TEST_CASE("A server that accepts and says nothing is given up at the deadline") {
    const FakeServer server;
    const auto client = StoreClient::connect(server.endpoint(), {.connect_timeout = 8s, .attempt_timeout = 300ms});
    REQUIRE_FALSE(client.has_value());
    CHECK(client.error().code == Errc::unreachable);
    CHECK(client.error().context.find("no answer to PING in time") != std::string::npos);
}
