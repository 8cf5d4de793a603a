// A page in TLS, from a daemon that may be cut off or have another key.
#include "launcher/status/http_get.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/tls/psk_channel.h"
#include "tests/support/catch.h"
#include "tests/support/far_address.h"

using namespace muster;
using namespace muster::launcher;
using rendezvous::ControlKey;
using rendezvous::PskChannel;

namespace {

const ControlKey viewer_key{.identity = "viewer", .key = std::string(32, 'v')};
const std::string answered = "HTTP/1.1 200 OK\r\nServer: muster\r\n\r\n{\"jobs\":[]}";
const std::string begun = "HTTP/1.1 200 OK\r\nServer: muster\r\nContent-Length: 11\r\n\r\n{\"jobs\"";

enum class Ending { with_its_word, cut, in_the_middle, silent };

constexpr Duration patience = 30s;

/// Answers one request on each of so many connections with this page, in TLS if the peer begins it.
class PageServer {
  public:
    explicit PageServer(Ending ending, int connections = 1)
        : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_ANY)}, .sin_zero = {}};
        socklen_t size = sizeof address;
        REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(::listen(listener_.get(), 4) == 0);
        limit(listener_.get());
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this, ending, connections] {
            for (int answered_count = 0; answered_count < connections;) {
                const FileDescriptor peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
                if (!peer.valid()) return;  // Nobody has come for long.
                limit(peer.get());
                answered_count += answer(peer.get(), ending) ? 1 : 0;
            }
        });
    }
    ~PageServer() {
        if (thread_.joinable()) thread_.join();
    }
    PageServer(const PageServer&) = delete;
    PageServer& operator=(const PageServer&) = delete;

    [[nodiscard]] SocketAddress at(const std::string& address) const {
        return *SocketAddress::from_numeric(address, port_);
    }
    /// What it was asked, once all connections are over.
    [[nodiscard]] const std::string& asked() {
        thread_.join();
        return asked_;
    }
    [[nodiscard]] int shakes() const { return shakes_; }

  private:
    static void limit(int socket) {
        const timeval time{.tv_sec = 20, .tv_usec = 0};
        ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    }
    /// False: the peer only looked whether somebody is here.
    bool answer(int peer, Ending ending) {
        char first = 0;
        if (::recv(peer, &first, 1, MSG_PEEK) != 1) return false;
        if (ending == Ending::silent) {
            while (::recv(peer, &first, 1, 0) > 0) {
            }
            return true;
        }
        const bool is_tls = first == 0x16;
        shakes_ += is_tls ? 1 : 0;
        PskChannel channel(rendezvous::PskContext::server([](std::string_view identity) {
            return identity == viewer_key.identity ? viewer_key.key : std::string();
        }));
        std::array<char, 4096> wire, plain;
        std::string& request = asked_;
        while (request.find("\r\n\r\n") == std::string::npos) {
            const auto size = ::recv(peer, wire.data(), wire.size(), 0);
            if (size <= 0) return true;
            std::string_view bytes(wire.data(), static_cast<std::size_t>(size));
            if (!is_tls) {
                request += bytes;
                continue;
            }
            while (const auto count = channel.read(bytes, plain)) request.append(plain.data(), count);
            flush(peer, channel);
            if (channel.state() == PskChannel::State::failed) return true;
        }
        if (!is_tls) {
            const auto& page = ending == Ending::in_the_middle ? begun : answered;
            (void)::send(peer, page.data(), page.size(), MSG_NOSIGNAL);
            return true;
        }
        channel.write(answered);
        if (ending == Ending::with_its_word) channel.close();
        flush(peer, channel);
        return true;
    }
    static void flush(int peer, PskChannel& channel) {
        (void)::send(peer, channel.output().data(), channel.output().size(), MSG_NOSIGNAL);
        channel.drop_output(channel.output().size());
    }

    FileDescriptor listener_;
    std::uint16_t port_ = 0;
    std::string asked_;
    std::atomic<int> shakes_ = 0;
    std::thread thread_;
};

Result<HttpAnswer> get(const std::vector<SocketAddress>& addresses, const std::vector<Way>& ways, std::size_t first = 0,
                       Duration limit = patience) {
    return http_get(addresses, "/status", ways, first, std::chrono::steady_clock::now() + limit);
}

const ControlKey wrong_key{"viewer", std::string(32, 'o')};

}  // namespace

TEST_CASE("a page in TLS is whole when the daemon has said that it is") {
    const auto far = test::far_address();
    if (far.empty()) return;
    PageServer ends(Ending::with_its_word);
    const auto whole = get({ends.at(far)}, {viewer_key});
    REQUIRE(whole.has_value());
    CHECK(whole->status == 200);
    CHECK(whole->body == "{\"jobs\":[]}");
    PageServer breaks(Ending::cut);
    const auto cut = get({breaks.at(far)}, {viewer_key});
    REQUIRE_FALSE(cut.has_value());
    CHECK(cut.error().code == Errc::bad_frame);
    CHECK_THAT(cut.error().context, Catch::Contains("the connection was cut"));
    CHECK_THAT(cut.error().context, Catch::Contains(far));
}

TEST_CASE("a page in clear text that ends in its middle is none") {
    PageServer server(Ending::in_the_middle);
    const auto half = get({server.at("127.0.0.1")}, {std::nullopt});
    REQUIRE_FALSE(half.has_value());
    CHECK(half.error().code == Errc::peer_closed);
    CHECK_THAT(half.error().context, Catch::Contains("in the middle of its answer"));
}

TEST_CASE("a daemon with another key is refused, and is told nothing") {
    const auto far = test::far_address();
    if (far.empty()) return;
    for (const auto& other : {wrong_key, ControlKey{"nobody", viewer_key.key}}) {
        PageServer server(Ending::with_its_word);
        const auto refused = get({server.at(far)}, {other});
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().code == Errc::permission_denied);
        CHECK_THAT(refused.error().context, Catch::Contains("another secret"));
        CHECK_THAT(refused.error().context, !Catch::Contains("--insecure"));
        CHECK(server.asked().empty());
    }
}

TEST_CASE("each way is tried at an address before the next address, the accepted one first, and clear text last") {
    const auto far = test::far_address();
    if (far.empty()) return;
    const auto closed = *SocketAddress::from_numeric(far, 1);  // nobody listens
    PageServer two(Ending::with_its_word, 2);
    const auto second = get({two.at(far), closed}, {wrong_key, viewer_key});
    REQUIRE(second.has_value());
    CHECK(second->way == 1);
    CHECK_FALSE(two.asked().empty());
    PageServer one(Ending::with_its_word);
    REQUIRE(get({one.at(far)}, {wrong_key, viewer_key}, second->way).has_value());
    CHECK(one.shakes() == 1);
    PageServer refuses(Ending::with_its_word);
    const auto refused = get({refuses.at(far), closed}, {wrong_key});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::permission_denied);
    PageServer open(Ending::with_its_word, 2);
    const auto clear = get({open.at(far)}, {wrong_key, std::nullopt});
    REQUIRE(clear.has_value());
    CHECK(clear->way == 1);
    CHECK_FALSE(open.asked().empty());
    CHECK(open.shakes() == 1);
}

TEST_CASE("an address of loopback is asked in clear text, also beside others") {
    const auto far = test::far_address();
    PageServer server(Ending::with_its_word);
    std::vector<SocketAddress> addresses{server.at("127.0.0.1")};
    if (!far.empty()) addresses.push_back(server.at(far));
    REQUIRE(get(addresses, {wrong_key}).has_value());
    CHECK_FALSE(server.asked().empty());
    CHECK(server.shakes() == 0);
}

TEST_CASE("a peer that accepts and says nothing ends at the deadline") {
    const auto far = test::far_address();
    if (far.empty()) return;
    PageServer server(Ending::silent);
    const auto nothing = get({server.at(far)}, {viewer_key}, 0, 300ms);
    REQUIRE_FALSE(nothing.has_value());
    CHECK(nothing.error().code == Errc::timed_out);
}
