// How a group over TCP forms, or says why it cannot.
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/socket_address.h"
#include "rendezvous/base/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/cpu/tcp_hello.h"

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
    Result<std::vector<std::string>> collect(const std::vector<std::string>& keys, Instant deadline) override {
        auto values = place_->collect(keys, deadline);
        if (values && on_values) on_values(*values);
        return values;
    }
    std::function<void(std::vector<std::string>& values)> on_values;

  private:
    std::shared_ptr<MeetingPlace> place_;
};

FileDescriptor connect_to(const TcpCard& card) {
    const auto address = SocketAddress::from_numeric(card.address, card.port);
    FileDescriptor socket(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), address->data(), address->size()) != 0) socket.reset();
    return socket;
}

}  // namespace

TEST_CASE("the ranks that did not come to the meeting are named") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    const GroupTerms terms{.rank = 0, .size = 3, .id = "world", .place = place, .meeting_timeout = 50ms};
    const auto transport = make_tcp_transport(terms, {.address = "127.0.0.1"});
    REQUIRE_FALSE(transport.has_value());
    CHECK(transport.error().code == Errc::timed_out);
    CHECK(transport.error().context.find("ranks 1, 2 did not come") != std::string::npos);
}

TEST_CASE("a rank that published its address and went away is named, with what was tried") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    TcpCard card{.address = "127.0.0.1", .port = 1, .pid = 4711, .host = "gpu07"};
    CHECK(place->publish("world/tcp/1", encode(card), no_deadline).has_value());
    const GroupTerms terms{.rank = 0, .size = 2, .id = "world", .place = place, .meeting_timeout = 60s};
    const auto refused = make_tcp_transport(terms, {.address = "127.0.0.1"});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::unreachable);
    CHECK(refused.error().context.find("rank 1 (pid 4711 on gpu07) at 127.0.0.1 port 1 refused the connection") !=
          std::string::npos);
    // Rank 1 waits for rank 0, which published but never connects.
    card.pid = 4712;
    const auto other = std::make_shared<test::MeetingInMemory>();
    CHECK(other->publish("world/tcp/0", encode(card), no_deadline).has_value());
    const GroupTerms late{.rank = 1, .size = 2, .id = "world", .place = other, .meeting_timeout = 100ms};
    const auto alone = make_tcp_transport(late, {.address = "127.0.0.1"});
    REQUIRE_FALSE(alone.has_value());
    CHECK(alone.error().context.find("rank 0 (pid 4712 on gpu07) did not connect") != std::string::npos);
}

TEST_CASE("an address that is none, or that is not this host's, is refused with the reason") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    const GroupTerms terms{.rank = 0, .size = 2, .id = "world", .place = place};
    for (const std::string address : {"gpu07", "", "192.0.2.1"}) {
        const auto transport = make_tcp_transport(terms, {.address = address});
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
