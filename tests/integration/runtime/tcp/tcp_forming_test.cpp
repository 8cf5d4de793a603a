// How a group over TCP forms, or says why it cannot.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/tcp/mesh/tcp_hello.h"
#include "worker_runtime/tcp/mesh/tcp_socket.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::Findings;
using test::join_over_tcp;
using test::run_as_threads;

namespace {

/// A meeting whose values a stranger reads too.
class OverheardMeeting final : public MeetingPlace {
  public:
    explicit OverheardMeeting(std::shared_ptr<MeetingPlace> place) : place_(std::move(place)) {}
    Result<void> publish(std::string_view key, std::string_view value, Instant deadline) override {
        return place_->publish(key, value, deadline);
    }
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys, const MeetingWait& wait) override {
        auto values = place_->collect(keys, wait);
        if (values && on_values) on_values(*values);
        return values;
    }
    std::function<void(std::vector<std::string>& values)> on_values;

  private:
    std::shared_ptr<MeetingPlace> place_;
};

FileDescriptor connect_to(const TcpCard& card) {
    const auto address = SocketAddress::from_numeric(card.places[0].address, card.places[0].port);
    FileDescriptor socket(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address->data(), address->size()) != 0) socket.reset();
    return socket;
}

/// A port of this host where nobody listens.
std::uint16_t closed_port() {
    const auto listener = listen_at("127.0.0.1", 1).value();
    return SocketAddress::local_of(listener.get()).port();
}

/// Somebody at an address that a rank has too, on another network. Accepts, and says `words` to whoever calls.
class Stranger {
  public:
    explicit Stranger(std::string words = {}) : listener_(listen_at("127.0.0.1", 8).value()) {
        thread_ = std::thread([this, words = std::move(words)] {
            std::vector<FileDescriptor> callers;
            for (;;) {
                pollfd ready{listener_.get(), POLLIN, 0};
                ::poll(&ready, 1, 10);
                if (over_) return;
                auto caller = accept_from(listener_);
                if (!caller.valid()) continue;
                ++called;
                (void)!::send(caller.get(), words.data(), words.size(), MSG_NOSIGNAL);
                callers.push_back(std::move(caller));
            }
        });
    }
    ~Stranger() {
        over_ = true;
        thread_.join();
    }
    [[nodiscard]] TcpPlace place() const { return {"127.0.0.1", SocketAddress::local_of(listener_.get()).port()}; }
    std::atomic<int> called = 0;

  private:
    FileDescriptor listener_;
    std::atomic<bool> over_ = false;
    std::thread thread_;
};

/// What is wrong with two ranks whose cards have these places before their own.
std::string form_beside(const std::vector<TcpPlace>& before) {
    Findings findings;
    const auto store = std::make_shared<test::MeetingInMemory>();
    run_as_threads(2, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        const auto place = std::make_shared<OverheardMeeting>(store);
        terms.place = place;
        place->on_values = [&](std::vector<std::string>& values) {
            for (auto& value : values) {
                auto card = decode_card(value).value();
                card.places.insert(card.places.begin(), before.begin(), before.end());
                value = encode(card);
            }
        };
        const auto world = join_over_tcp(terms);
        findings.expect(carry_out(*world, barrier()), "barrier");
    });
    return findings.text();
}

}  // namespace

TEST_CASE("the ranks that did not join the meeting are named") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    const GroupTerms terms{.rank = 0, .size = 3, .id = "world", .place = place, .meeting_timeout = 50ms};
    const auto transport = make_tcp_transport(terms, {.addresses = {"127.0.0.1"}});
    REQUIRE_FALSE(transport.has_value());
    CHECK(transport.error().code == Errc::timed_out);
    CHECK(transport.error().context.find("ranks 1, 2 did not join") != std::string::npos);
}

TEST_CASE("a rank that published its address and went away is named, with what was tried") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    TcpCard card{.places = {{"127.0.0.1", 1}}, .pid = 4711, .host = "gpu07"};
    CHECK(place->publish("world/tcp/1", encode(card), no_deadline).has_value());
    const GroupTerms terms{.rank = 0, .size = 2, .id = "world", .place = place, .meeting_timeout = 60s};
    const auto refused = make_tcp_transport(terms, {.addresses = {"127.0.0.1"}});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::unreachable);
    CHECK(refused.error().context.find("rank 1 (pid 4711 on gpu07) cannot be reached (127.0.0.1 port 1: "
                                       "Connection refused)") != std::string::npos);
    // Rank 1 waits for rank 0, which published but never connects.
    card.pid = 4712;
    const auto other = std::make_shared<test::MeetingInMemory>();
    CHECK(other->publish("world/tcp/0", encode(card), no_deadline).has_value());
    const GroupTerms late{.rank = 1, .size = 2, .id = "world", .place = other, .meeting_timeout = 100ms};
    const auto alone = make_tcp_transport(late, {.addresses = {"127.0.0.1"}});
    REQUIRE_FALSE(alone.has_value());
    CHECK(alone.error().context.find("rank 0 (pid 4712 on gpu07) did not connect") != std::string::npos);
}

TEST_CASE("a rank is found at the address that leads to it, whoever or nobody is at the others") {
    Stranger silent;
    Stranger other(std::string(16, 'x'));
    CHECK(form_beside({{"127.0.0.1", closed_port()}, other.place(), silent.place()}) == "");
    CHECK((silent.called > 0 && other.called > 0));
}

TEST_CASE("a rank that nobody can reach is named with each address and what came of it") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    Stranger silent;
    Stranger other(std::string(16, 'x'));
    TcpCard card{.places = {{"127.0.0.1", 1}, silent.place(), other.place()}, .pid = 4711, .host = "gpu07"};
    CHECK(place->publish("world/tcp/1", encode(card), no_deadline).has_value());
    const GroupTerms terms{.rank = 0, .size = 2, .id = "world", .place = place, .meeting_timeout = 4s};
    const auto none = make_tcp_transport(terms, {.addresses = {"127.0.0.1"}});
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().code == Errc::timed_out);
    const auto& text = none.error().context;
    CHECK(text.find("rank 1 (pid 4711 on gpu07) cannot be reached: 127.0.0.1 port 1: Connection refused, ") !=
          std::string::npos);
    CHECK(text.find(cat(describe(silent.place()), ": connected, but no answer to the greeting")) != std::string::npos);
    CHECK(text.find(cat(describe(other.place()), ": another program answered")) != std::string::npos);
    CHECK(text.find("MUSTER_IFNAME") != std::string::npos);
}

TEST_CASE("a rank whose addresses all refuse has ended, and nobody waits for it") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    const TcpCard card{.places = {{"127.0.0.1", closed_port()}, {"127.0.0.2", 1}}, .pid = 4711, .host = "gpu07"};
    for (const int rank : {0, 1}) {
        CHECK(place->publish(cat("world/tcp/", 1 - rank), encode(card), no_deadline).has_value());
        const GroupTerms terms{.rank = rank, .size = 2, .id = "world", .place = place, .meeting_timeout = 60s};
        const auto none = make_tcp_transport(terms, {.addresses = {"127.0.0.1"}});
        REQUIRE_FALSE(none.has_value());
        CHECK((none.error().code == Errc::unreachable || none.error().code == Errc::peer_closed));
        CHECK(none.error().context.find("(pid 4711 on gpu07)") != std::string::npos);
    }
}

TEST_CASE("an address at which a rank cannot listen is passed over while there is another") {
    Findings findings;
    run_as_threads(2, [&](const GroupTerms& terms) {
        const auto world = make_tcp_transport(terms, {.addresses = {"192.0.2.1", "127.0.0.1", "::1"}});
        findings.expect(world, "192.0.2.1 is not this host's");
        if (world) findings.expect(carry_out(**world, barrier()), "barrier");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("an address that is none, or that is not this host's, is refused with the reason") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    const GroupTerms terms{.rank = 0, .size = 2, .id = "world", .place = place};
    for (const std::string address : {"gpu07", "", "192.0.2.1"}) {
        const auto transport = make_tcp_transport(terms, {.addresses = {address}});
        REQUIRE_FALSE(transport.has_value());
        CHECK(transport.error().context.find(address) != std::string::npos);
    }
}

TEST_CASE("strangers who connect while a group forms are turned away, and the group forms") {
    Findings findings;
    std::atomic<int> turned_away = 0;
    const auto store = std::make_shared<test::MeetingInMemory>();
    run_as_threads(3, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        const auto place = std::make_shared<OverheardMeeting>(store);
        terms.place = place;
        std::vector<std::thread> strangers;
        place->on_values = [&](std::vector<std::string>& values) {
            if (terms.rank != 0) return;
            // Rank 0 has not called yet. Each stranger talks to rank 2, and one keeps silent.
            const TcpCard card = decode_card(values[2]).value();
            TcpHello hello{.from = 0, .to = 2, .purpose = TcpPurpose::control, .token = random_token()};
            const auto wrong_token = encode(hello);
            hello = {.from = 2, .to = 2, .purpose = TcpPurpose::control, .token = card.token};
            const auto wrong_rank = encode(hello);
            const std::string web = "GET / HTTP/1.1\r\nHost: somewhere-else.example\r\n\r\n";
            for (const auto& words :
                 {std::string(reinterpret_cast<const char*>(wrong_token.data()), wrong_token.size()),
                  std::string(reinterpret_cast<const char*>(wrong_rank.data()), wrong_rank.size()), web}) {
                strangers.emplace_back([&turned_away, card, words] {
                    const auto socket = connect_to(card);
                    (void)!::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL);
                    char answer = 0;
                    if (::recv(socket.get(), &answer, 1, 0) <= 0) ++turned_away;
                });
            }
            strangers.emplace_back([card] {
                const auto silent = connect_to(card);
                char answer = 0;
                (void)!::recv(silent.get(), &answer, 1, 0);
            });
            while (turned_away < 3) std::this_thread::sleep_for(1ms);
        };
        const auto world = join_over_tcp(terms);
        for (auto& stranger : strangers) stranger.join();
        findings.expect(carry_out(*world, barrier()), "barrier");
    });
    CHECK(findings.text() == "");
    CHECK(turned_away == 3);
}

}  // namespace muster
