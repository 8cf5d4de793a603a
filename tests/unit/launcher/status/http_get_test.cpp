// A page in TLS, from a daemon that may be cut off or have another key.
#include "launcher/status/http_get.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <thread>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/tls/psk_channel.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;
using rendezvous::ControlKey;
using rendezvous::PskChannel;

namespace {

const ControlKey viewer_key{.identity = "viewer", .key = std::string(32, 'v')};
const std::string answered = "HTTP/1.1 200 OK\r\nServer: muster\r\n\r\n{\"jobs\":[]}";

enum class Ending { with_its_word, cut };

/// Answers one request in TLS with this page, at a port of loopback.
class PageServer {
  public:
    explicit PageServer(Ending ending) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
        socklen_t size = sizeof address;
        REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(::listen(listener_.get(), 1) == 0);
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this, ending] { answer(ending); });
    }
    ~PageServer() { thread_.join(); }
    PageServer(const PageServer&) = delete;
    PageServer& operator=(const PageServer&) = delete;

    [[nodiscard]] Result<HttpAnswer> get(const std::optional<ControlKey>& key) const {
        return http_get({*SocketAddress::from_numeric("127.0.0.1", port_)}, "/status", key,
                        std::chrono::steady_clock::now() + 30s);
    }

  private:
    void answer(Ending ending) {
        const FileDescriptor peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        PskChannel channel(rendezvous::PskContext::server([](std::string_view identity) {
            return identity == viewer_key.identity ? viewer_key.key : std::string();
        }));
        std::array<char, 4096> wire, plain;
        std::string request;
        while (request.find("\r\n\r\n") == std::string::npos) {
            const auto size = ::recv(peer.get(), wire.data(), wire.size(), 0);
            if (size <= 0) return;
            std::string_view bytes(wire.data(), static_cast<std::size_t>(size));
            while (const auto count = channel.read(bytes, plain)) request.append(plain.data(), count);
            flush(peer.get(), channel);
            if (channel.state() == PskChannel::State::failed) return;
        }
        channel.write(answered);
        if (ending == Ending::with_its_word) channel.close();
        flush(peer.get(), channel);
    }
    static void flush(int peer, PskChannel& channel) {
        (void)::send(peer, channel.output().data(), channel.output().size(), MSG_NOSIGNAL);
        channel.drop_output(channel.output().size());
    }

    FileDescriptor listener_;
    std::uint16_t port_ = 0;
    std::thread thread_;
};

}  // namespace

TEST_CASE("a page in TLS is whole when the daemon has said that it is") {
    const auto whole = PageServer(Ending::with_its_word).get(viewer_key);
    REQUIRE(whole.has_value());
    CHECK(whole->status == 200);
    CHECK(whole->body == "{\"jobs\":[]}");
    const auto cut = PageServer(Ending::cut).get(viewer_key);
    REQUIRE_FALSE(cut.has_value());
    CHECK(cut.error().code == Errc::bad_frame);
    CHECK_THAT(cut.error().context, Catch::Contains("the connection was cut"));
}

TEST_CASE("a daemon with another key is refused, and is told nothing") {
    for (const auto& other : {ControlKey{"viewer", std::string(32, 'o')}, ControlKey{"nobody", viewer_key.key}}) {
        const auto refused = PageServer(Ending::with_its_word).get(other);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().code == Errc::permission_denied);
        CHECK_THAT(refused.error().context, Catch::Contains("another secret"));
    }
}
