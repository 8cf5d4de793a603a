// Which of several addresses is reached, and how long dead ends take: with a loop and without.
#include "rendezvous/connect/connect_race.h"

#include <sys/socket.h>

#include <array>
#include <boost/asio/write.hpp>
#include <functional>
#include <optional>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/reachable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/client/connector.h"
#include "rendezvous/client/peer_query.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/support/catch.h"

namespace muster::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// A port of loopback at which somebody listens, or nobody.
class Place {
  public:
    explicit Place(bool listens) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        auto any = *SocketAddress::from_numeric("127.0.0.1", 0);
        REQUIRE(::bind(socket.get(), any.data(), any.size()) == 0);
        if (listens) REQUIRE(::listen(socket.get(), 0) == 0);
        address = SocketAddress::local_of(socket.get());
    }
    [[nodiscard]] tcp::endpoint endpoint() const { return {asio::ip::address_v4::loopback(), address.port()}; }

    FileDescriptor socket;
    SocketAddress address;
};

/// A port whose queue is full: the kernel drops what comes, as a firewall would.
struct DeadEnd : Place {
    DeadEnd() : Place(true) {
        for (auto& one : filling) {
            one = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
            (void)::connect(one.get(), address.data(), address.size());
        }
    }
    std::array<FileDescriptor, 4> filling;
};

ConnectRace::Outcome race(asio::io_context& io, std::vector<tcp::endpoint> addresses, Duration attempt) {
    std::optional<ConnectRace::Outcome> outcome;
    ConnectRace::start(io, std::move(addresses), attempt, [&](ConnectRace::Outcome found) {
        REQUIRE_FALSE(outcome);
        outcome = std::move(found);
    });
    io.run_for(60s);
    REQUIRE(outcome);
    return std::move(*outcome);
}

Duration taken(const std::function<void()>& work) {
    const auto began = std::chrono::steady_clock::now();
    work();
    return std::chrono::steady_clock::now() - began;
}

}  // namespace

TEST_CASE("a dead end and a refusal before the right address cost a fraction of a second") {
    const DeadEnd dead;
    const Place refuses(false);
    const Place right(true);
    asio::io_context io;
    const auto took = taken([&] {
        const auto outcome = race(io, {dead.endpoint(), refuses.endpoint(), right.endpoint()}, 60s);
        REQUIRE(outcome.socket);
        CHECK(outcome.socket->remote_endpoint() == right.endpoint());
        REQUIRE(outcome.failures.size() == 1);
        CHECK(outcome.failures.front().why == asio::error::connection_refused);
    });
    CHECK(took < 50s);
}

TEST_CASE("when nobody answers, all that was tried is told with its answer") {
    const DeadEnd dead;
    const Place refuses(false);
    asio::io_context io;
    const auto outcome = race(io, {dead.endpoint(), refuses.endpoint()}, 4s);
    CHECK_FALSE(outcome.socket);
    const auto tried = what_was_tried(outcome.failures, 4s);
    const std::string refused = "127.0.0.1: Connection refused", silent = "127.0.0.1: no answer within 4 s";
    // The other way round where this process stood still for the four seconds.
    CHECK((tried == cat(refused, ", ", silent) || tried == cat(silent, ", ", refused)));
}

TEST_CASE("a race that is cancelled says nothing, and one that is given up tells what failed so far") {
    const DeadEnd dead;
    const Place refuses(false);
    asio::io_context io;
    int told = 0;
    const auto cancelled =
        ConnectRace::start(io, {dead.endpoint()}, 60s, [&](const ConnectRace::Outcome&) { FAIL("called"); });
    const auto given_up =
        ConnectRace::start(io, {refuses.endpoint(), dead.endpoint()}, 60s,
                           [&](const ConnectRace::Outcome& outcome) { told += outcome.socket ? 10 : 1; });
    io.run_one_for(60s);
    cancelled->cancel();
    given_up->give_up();
    io.run_for(60s);
    CHECK(told == 1);
}

TEST_CASE("a connector takes several addresses of one host as it takes a name") {
    const Place right(true);
    asio::io_context io;
    Resolver resolver(io);
    std::optional<Result<tcp::socket>> reached;
    Connector::start(io, resolver, {"::1,127.0.0.1", right.address.port()}, {.resolve = 60s, .attempt = 60s},
                     [&](Result<tcp::socket> socket) { reached = std::move(socket); });
    io.run_for(60s);
    REQUIRE((reached && *reached));
    CHECK((*reached)->remote_endpoint() == right.endpoint());
}

TEST_CASE("without a loop the address that answers comes first, and the order stays where none does") {
    const DeadEnd dead;
    const Place refuses(false);
    const Place right(true);
    const auto in = [](Duration time) { return std::chrono::steady_clock::now() + time; };
    const auto took = taken([&] {
        const auto ordered = reachable_first({dead.address, refuses.address, right.address}, in(60s));
        CHECK(ordered.front().port() == right.address.port());
        CHECK(ordered.size() == 3);
    });
    CHECK(took < 50s);
    CHECK(reachable_first({dead.address, refuses.address}, in(400ms)).front().port() == dead.address.port());
    CHECK(reachable_first({refuses.address, refuses.address}, in(60s)).size() == 2);
    CHECK(reachable_first({dead.address}, in(60s)).size() == 1);
}

TEST_CASE("a question reaches a peer by its second address within its time, and the next one goes there first") {
    const DeadEnd dead;
    asio::io_context io;
    tcp::acceptor peer(io, {asio::ip::make_address("127.0.0.2"), dead.endpoint().port()});
    std::string answer;
    native::append_frame(answer, native::PeerAnswer{});
    Resolver resolver(io);
    AnsweringAddresses known;
    QueryPeer ask{.peer = {.group_rank = 0, .address = "127.0.0.1,127.0.0.2", .port = dead.endpoint().port()},
                  .ask = {},
                  .timeout = 250ms};
    std::optional<native::PeerAnswer> heard;
    bool over = false;
    const std::function<void()> serve = [&] {
        peer.async_accept([&](const boost::system::error_code& failure, tcp::socket socket) {
            boost::system::error_code gone;
            if (!failure) asio::write(socket, asio::buffer(answer), gone);
            if (!failure && !over) serve();
        });
    };
    // On a busy host the time of one question may be over before anybody had a turn.
    for (int i = 0; i < 20 && !heard; ++i) {
        over = false;
        serve();
        query_peer(io, resolver, known, ask, [&](std::optional<native::PeerAnswer> said) {
            heard = std::move(said);
            over = true;
            peer.cancel();
        });
        io.restart();
        io.run_for(60s);
    }
    CHECK(heard.has_value());
    REQUIRE(known.contains(ask.peer.address));
    CHECK(known[ask.peer.address].to_string() == "127.0.0.2");

    std::optional<std::string> reached;
    Connector::start(io, resolver, {.host = ask.peer.address, .port = ask.peer.port},
                     {.resolve = 60s, .attempt = 60s, .stagger = 60s, .first = known[ask.peer.address]},
                     [&](Result<tcp::socket> socket) {
                         reached = socket ? socket->remote_endpoint().address().to_string() : "none";
                     });
    io.restart();
    io.run_for(60s);
    CHECK(reached == "127.0.0.2");
}

}  // namespace muster::rendezvous
