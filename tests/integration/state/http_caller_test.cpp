// Requests to a server of the test's own, whose name a name service of the test's own may know.
#include "rendezvous/state/etcd/http_caller.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

/// Answers each request with "{}"; on the test's own loop.
class Server {
  public:
    Server(asio::io_context& io, std::uint16_t port = 0)
        : io_(io), acceptor_(io, tcp::endpoint(asio::ip::address_v4::loopback(), port)) {
        accept();
    }
    [[nodiscard]] std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
    void close_connections() {
        for (const auto& peer : std::exchange(peers_, {})) peer->socket.close();
    }

    int connection_count = 0;
    bool answers = true;

  private:
    struct Peer {
        explicit Peer(tcp::socket connected) : socket(std::move(connected)) {}
        tcp::socket socket;
        std::string bytes;
    };
    void accept() {
        acceptor_.async_accept([this](const boost::system::error_code& failure, tcp::socket socket) {
            if (failure) return;
            ++connection_count;
            peers_.push_back(std::make_shared<Peer>(std::move(socket)));
            serve(peers_.back());
            accept();
        });
    }
    void serve(const std::shared_ptr<Peer>& peer) {
        asio::async_read_until(peer->socket, asio::dynamic_buffer(peer->bytes), "\r\n\r\n[]",
                               [this, peer](const boost::system::error_code& failure, std::size_t size) {
                                   if (failure || !answers) return;
                                   peer->bytes.erase(0, size);
                                   static const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
                                   asio::write(peer->socket, asio::buffer(answer));
                                   serve(peer);
                               });
    }

    asio::io_context& io_;
    tcp::acceptor acceptor_;
    std::vector<std::shared_ptr<Peer>> peers_;
};

struct World {
    explicit World(std::size_t server_count = 1) {
        std::vector<Endpoint> places;
        for (std::size_t i = 0; i < server_count; ++i) {
            servers.push_back(std::make_unique<Server>(io));
            places.push_back({"etcd", servers.back()->port()});
        }
        caller =
            *HttpCaller::open(io, places, std::nullopt, [this](const Endpoint& endpoint, Resolver::Handler handler) {
                ++look_up_count;
                waiting.emplace_back(endpoint, std::move(handler));
                if (names_answer) answer_names();
            });
    }
    void answer_names() {
        for (auto& [endpoint, handler] : std::exchange(waiting, {}))
            handler(Resolver::Addresses{{asio::ip::address_v4::loopback(), endpoint.port}});
    }
    Result<HttpResponse> post(std::size_t server = 0, Duration timeout = 60s) {
        std::optional<Result<HttpResponse>> got;
        caller->post({server, "/x", "[]", {}}, timeout,
                     [&](Result<HttpResponse> response) { got = std::move(response); });
        while (!got) io.run_one();
        return *std::move(got);
    }

    asio::io_context io;
    asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
    std::vector<std::unique_ptr<Server>> servers;
    std::unique_ptr<HttpCaller> caller;
    std::vector<std::pair<Endpoint, Resolver::Handler>> waiting;
    bool names_answer = true;
    int look_up_count = 0;
};

}  // namespace

TEST_CASE("requests share a connection, and a name is looked up once") {
    World world;
    for (int times = 0; times < 20; ++times) {
        const auto response = world.post();
        REQUIRE(response.has_value());
        CHECK(response->status == 200);
        CHECK(response->body == "{}");
    }
    CHECK(world.servers[0]->connection_count == 1);
    CHECK(world.look_up_count == 1);
}

TEST_CASE("with addresses that are known nobody waits for the name service") {
    World world;
    world.names_answer = false;
    world.caller->know(0, "127.0.0.2,not-a-number,127.0.0.1");
    CHECK(world.post().has_value());
    CHECK(world.look_up_count == 1);
    world.answer_names();
    CHECK(world.post().has_value());
}

TEST_CASE("a kept connection that its server has closed costs no request") {
    World world;
    REQUIRE(world.post().has_value());
    world.servers[0]->close_connections();
    CHECK(world.post().has_value());
    CHECK(world.servers[0]->connection_count == 2);
    CHECK(world.look_up_count == 1);
}

TEST_CASE("after a failure a name service that hangs holds nobody up") {
    World world;
    REQUIRE(world.post().has_value());
    world.names_answer = false;
    const auto port = world.servers[0]->port();
    world.servers[0]->close_connections();
    world.servers[0].reset();
    CHECK(world.post().error().code == Errc::unreachable);
    world.servers[0] = std::make_unique<Server>(world.io, port);
    for (int times = 0; times < 3; ++times) CHECK(world.post().has_value());
    CHECK(world.look_up_count == 2);
    CHECK(world.waiting.size() == 1);
}

TEST_CASE("a name that is not known yet costs its requests their time, and no other server's") {
    World world(2);
    world.names_answer = false;
    const auto slow = world.post(0, 50ms);
    REQUIRE(slow.has_error());
    CHECK(slow.error().code == Errc::timed_out);
    CHECK(slow.error().context.find("the name was not resolved within 50 ms") != std::string::npos);
    world.names_answer = true;
    CHECK(world.post(1).has_value());
    CHECK(world.post(0).has_value());  // the first look-up has been answered with the other one's
    CHECK(world.look_up_count == 2);
}

TEST_CASE("a server that does not answer costs one time-out, and the next request a new connection") {
    World world;
    world.servers[0]->answers = false;
    const auto silent = world.post(0, 5s);
    REQUIRE(silent.has_error());
    CHECK(silent.error().context.find("no answer within 5 s") != std::string::npos);
    world.servers[0]->answers = true;
    CHECK(world.post().has_value());
    CHECK(world.servers[0]->connection_count == 2);
}
