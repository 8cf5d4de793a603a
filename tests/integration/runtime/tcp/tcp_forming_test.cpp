// How a group over TCP forms, or says why it cannot.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/tcp/mesh/tcp_call.h"
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
    Stranger other(std::string(sizeof(TcpAnswerBytes), 'x'));
    CHECK(form_beside({{"127.0.0.1", closed_port()}, other.place(), silent.place()}) == "");
    // Their threads may accept what called them long ago.
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while ((silent.called == 0 || other.called == 0) && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(1ms);
    CHECK((silent.called > 0 && other.called > 0));
}

TEST_CASE("a rank that nobody can reach is named with each address and what came of it") {
    const auto place = std::make_shared<test::MeetingInMemory>();
    Stranger silent;
    Stranger other(std::string(sizeof(TcpAnswerBytes), 'x'));
    TcpCard card{.places = {{"127.0.0.1", 1}, silent.place(), other.place()}, .pid = 4711, .host = "gpu07"};
    CHECK(place->publish("world/tcp/1", encode(card), no_deadline).has_value());
    const GroupTerms terms{.rank = 0, .size = 2, .id = "world", .place = place, .meeting_timeout = 10s};
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
    const TcpCard card{.places = {{"127.0.0.1", 1}, {"127.0.0.2", 1}}, .pid = 4711, .host = "gpu07"};
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

namespace {

using Words = std::function<std::vector<std::string>(const std::vector<TcpCard>& cards)>;

/// What is wrong with three ranks that have this key while strangers say each of `words` to rank 2, which rank 0 has
/// not called yet, and one more is silent. A stranger that gets an answer has become a rank.
std::string form_among(const std::string& key, const Words& words) {
    Findings findings;
    std::atomic<int> turned_away = 0, taken_in = 0;
    const auto store = std::make_shared<test::MeetingInMemory>();
    run_as_threads(3, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        terms.security.key = key;
        const auto place = std::make_shared<OverheardMeeting>(store);
        terms.place = place;
        std::vector<std::thread> strangers;
        place->on_values = [&](std::vector<std::string>& values) {
            if (terms.rank != 0) return;
            std::vector<TcpCard> cards;
            for (const auto& value : values) cards.push_back(decode_card(value).value());
            const auto said = words(cards);
            for (const auto& one : said) {
                strangers.emplace_back([&, card = cards[2], one] {
                    const auto socket = connect_to(card);
                    (void)!::send(socket.get(), one.data(), one.size(), MSG_NOSIGNAL);
                    char answer = 0;
                    ++(::recv(socket.get(), &answer, 1, 0) <= 0 ? turned_away : taken_in);
                });
            }
            strangers.emplace_back([card = cards[2]] {
                const auto silent = connect_to(card);
                char answer = 0;
                (void)!::recv(silent.get(), &answer, 1, 0);
            });
            while (turned_away + taken_in < static_cast<int>(said.size())) std::this_thread::sleep_for(1ms);
        };
        const auto world = join_over_tcp(terms);
        for (auto& stranger : strangers) stranger.join();
        findings.expect(carry_out(*world, barrier()), "barrier");
    });
    findings.expect(taken_in == 0, "a stranger became a rank");
    return findings.text();
}

std::string text_of(const TcpHelloBytes& hello) {
    return {reinterpret_cast<const char*>(hello.data()), hello.size()};
}

}  // namespace

TEST_CASE("strangers who connect while a group forms are turned away, and the group forms") {
    CHECK(form_among("", [](const std::vector<TcpCard>& cards) {
              const TcpPair unread{.group = "world"};
              const TcpPair read{.group = "world", .caller = cards[0].token, .called = cards[2].token};
              return std::vector{
                  text_of(encode({.from = 0, .to = 2}, unread)), text_of(encode({.from = 2, .to = 2}, read)),
                  std::string("GET /index.html HTTP/1.1\r\nHost: somewhere-else.example.org\r\nAccept: */*\r\n\r\n")};
          }) == "");
}

TEST_CASE("a stranger who has read the whole store becomes no rank of a group whose ranks have a key") {
    CHECK(form_among(std::string(32, 'k'), [](const std::vector<TcpCard>& cards) {
              // As ranks without a key call, with a key of the stranger's own, and a rank's words to another one.
              TcpPair pair{.group = "world", .caller = cards[0].token, .called = cards[2].token};
              const auto by_tokens = text_of(encode({.from = 0, .to = 2}, pair));
              pair.security.key = std::string(16, '\0') + std::string(16, 'k');
              const auto by_own_key = text_of(encode({.from = 0, .to = 2}, pair));
              pair.security.key = std::string(32, 'k');
              pair.at = {"127.0.0.1", 1};  // as it calls another address
              const auto at_another_place = text_of(encode({.from = 0, .to = 2}, pair));
              pair.at = cards[2].places[0];
              pair.called = cards[1].token;
              return std::vector{by_tokens, by_own_key, at_another_place, text_of(encode({.from = 0, .to = 2}, pair))};
          }) == "");
}

TEST_CASE("a rank with a key tells nothing to a stranger who has put itself into the store in place of a rank") {
    const auto listener = listen_at("127.0.0.1", 8).value();
    const auto at = SocketAddress::local_of(listener.get());
    TcpCard card{.places = {{at.numeric(), at.port()}}, .pid = 4711, .host = "gpu07", .token = random_token()};
    const auto place = std::make_shared<test::MeetingInMemory>();
    const auto own = std::make_shared<OverheardMeeting>(place);
    TcpToken caller{};
    own->on_values = [&](std::vector<std::string>& values) { caller = decode_card(values[0]).value().token; };
    GroupTerms terms{.rank = 0, .size = 2, .id = "world", .place = own, .meeting_timeout = 60s};
    terms.security.key = std::string(32, 'k');
    card.mode = terms.security.mode();
    CHECK(place->publish("world/tcp/1", encode(card), no_deadline).has_value());
    std::thread stranger([&] {
        pollfd called{listener.get(), POLLIN, 0};
        ::poll(&called, 1, 60'000);
        const auto socket = accept_from(listener);
        pollfd said{socket.get(), POLLIN, 0};
        TcpHelloBytes hello{};
        for (std::size_t size = 0; size < hello.size() && ::poll(&said, 1, 60'000) == 1;)
            if (!receive_more(socket, hello, size)) break;
        const auto answer = answer_to(hello, {.group = "world", .caller = caller, .called = card.token});
        (void)!::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    });
    const auto joined = make_tcp_transport(terms, {.addresses = {"127.0.0.1"}});
    stranger.join();
    REQUIRE_FALSE(joined.has_value());
    CHECK(joined.error().context.find(cat("rank 1 (pid 4711 on gpu07) cannot be reached (", describe(card.places[0]),
                                          ": another program answered, which is not this rank)")) != std::string::npos);
}

TEST_CASE("ranks that protect their connections in different ways are named before they connect") {
    Findings findings;
    run_as_threads(2, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        if (terms.rank == 1) terms.security.key = std::string(32, 'k');
        const auto world = make_tcp_transport(terms, {.addresses = {"127.0.0.1"}});
        const auto text = world ? std::string() : world.error().context;
        findings.expect(text.find("has no key, rank 1") != std::string::npos, text);
    });
    CHECK(findings.text() == "");
}

namespace {

/// Between two ranks: passes bytes on in both directions, keeps what it read, and from `changes_at` on changes one.
class Relay {
  public:
    Relay(TcpPlace to, std::size_t changes_at) : to_(std::move(to)), changes_at_(changes_at) {
        thread_ = std::thread([this] { run(); });
    }
    ~Relay() { stop(); }
    [[nodiscard]] TcpPlace place() const { return {"127.0.0.1", SocketAddress::local_of(listener_.get()).port()}; }
    [[nodiscard]] bool has_read(std::string_view text) {
        stop();
        return std::any_of(read_.begin(), read_.end(),
                           [&](const auto& one) { return one.find(text) != std::string::npos; });
    }

  private:
    void stop() {
        over_ = true;
        if (thread_.joinable()) thread_.join();
    }
    void run() {
        std::vector<FileDescriptor> ends;  // two of each connection
        while (!over_) {
            std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
            for (const auto& end : ends) polled.push_back({end.get(), POLLIN, 0});
            if (::poll(polled.data(), polled.size(), 10) <= 0) continue;
            for (std::size_t i = 0; i + 1 < polled.size(); ++i)
                if (polled[i + 1].revents != 0) pass_on(ends[i], ends[i ^ 1], i);
            if (polled[0].revents == 0) continue;
            ends.push_back(accept_from(listener_));
            TcpCard card;
            card.places = {to_};
            ends.push_back(connect_to(card));
            read_.resize(ends.size());
        }
    }
    void pass_on(FileDescriptor& from, FileDescriptor& to, std::size_t number) {
        std::string bytes(1 << 16, '\0');
        const auto got = ::recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got <= 0) {
            ::shutdown(to.get(), SHUT_WR);
            return from.reset();
        }
        bytes.resize(static_cast<std::size_t>(got));
        const auto before = read_[number].size();
        read_[number] += bytes;
        if (before < changes_at_ && read_[number].size() > changes_at_) bytes[changes_at_ - before] ^= 1;
        for (std::size_t sent = 0; sent < bytes.size();) {
            const auto more = ::send(to.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
            if (more <= 0) break;
            sent += static_cast<std::size_t>(more);
        }
    }

    TcpPlace to_;
    std::size_t changes_at_;
    FileDescriptor listener_ = listen_at("127.0.0.1", 32).value();
    std::vector<std::string> read_;
    std::atomic<bool> over_ = false;
    std::thread thread_;
};

/// Two ranks that exchange a recognisable text over a relay: what is wrong, the error of a rank, and what was read.
struct Relayed {
    std::string findings, error;
    bool was_read = false;
};
/// `beside`: rank 1's own place is behind the relay's.
Relayed exchange_over_relay(const WireSecurity& security, std::size_t changes_at, bool beside = false) {
    Findings findings;
    Relayed relayed;
    const std::string text = "the gradients of rank 0, which nobody else is to read";
    const auto store = std::make_shared<test::MeetingInMemory>();
    std::unique_ptr<Relay> relay;
    std::mutex mutex;
    run_as_threads(2, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        terms.security = security;
        const auto place = std::make_shared<OverheardMeeting>(store);
        terms.place = place;
        place->on_values = [&](std::vector<std::string>& values) {
            if (terms.rank != 0) return;
            auto card = decode_card(values[1]).value();
            relay = std::make_unique<Relay>(card.places[0], changes_at);
            if (!beside) card.places.clear();
            card.places.insert(card.places.begin(), relay->place());
            values[1] = encode(card);
        };
        const auto world = join_over_tcp(terms);
        std::string moved = terms.rank == 0 ? text : std::string(text.size(), '\0');
        const Buffer memory{moved.data(), moved.size(), DataType::u8};
        auto done = carry_out(*world, broadcast(memory, 0));
        for (int i = 0; done && i < 100; ++i) done = carry_out(*world, all_reduce(memory, ReduceOp::max));
        const std::lock_guard lock(mutex);
        if (done)
            findings.expect(moved == text, "other bytes arrived");
        else
            relayed.error += done.error().context + "\n";
    });
    relayed.was_read = relay->has_read(text);
    relay.reset();
    relayed.findings = findings.text();
    return relayed;
}

}  // namespace

TEST_CASE("a third party between two ranks reads nothing of an encrypted group, and changes nothing unnoticed") {
    constexpr std::size_t never = ~std::size_t{0};
    const WireSecurity clear{.key = std::string(32, 'k')}, encrypted{.key = std::string(32, 'k'), .encrypts = true};
    const auto unread = exchange_over_relay(encrypted, never);
    CHECK((unread.findings == "" && unread.error == ""));
    CHECK_FALSE(unread.was_read);
    const auto changed = exchange_over_relay(encrypted, 500);
    CHECK(changed.findings == "");
    CHECK(changed.error.find("were changed on the way") != std::string::npos);
    // In clear text it is refused: the ranks agree on where one called the other. Without a key it is not known.
    const auto passed_on = exchange_over_relay(clear, never, true);
    CHECK((passed_on.findings == "" && passed_on.error == ""));
    CHECK_FALSE(passed_on.was_read);
    CHECK(exchange_over_relay({}, never).was_read);
}

}  // namespace muster
