#include "launcher/status/http_get.h"

#include "launcher/status/daemon_socket.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::size_t page_bytes_max = std::size_t{64} << 20;

Result<HttpAnswer> parse(std::string_view answer) {
    constexpr std::string_view begin = "HTTP/1.1 ";
    const auto head_end = answer.find("\r\n\r\n");
    unsigned status = 0;
    if (!answer.starts_with(begin) || head_end == std::string_view::npos ||
        answer.find("\r\nServer: muster\r\n") > head_end || !parse_number(answer.substr(begin.size(), 3), status))
        return Error{Errc::bad_frame, "its answer is not muster's; does another server own the port?"};
    return HttpAnswer{status, std::string(answer.substr(head_end + 4))};
}

/// Lets an interruption use the socket while this lives.
struct Use {
    Use(Interruption* one, const rendezvous::BlockingSocket& socket)
        : interruption(one), is_wanted(one == nullptr || one->use(&socket)) {}
    ~Use() {
        if (interruption != nullptr) interruption->use(nullptr);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    Interruption* interruption;
    bool is_wanted;
};

Result<HttpAnswer> get_at(const SocketAddress& address, const std::string& question,
                          const std::optional<rendezvous::ControlKey>& key, Instant deadline,
                          Interruption* interruption) {
    auto begun = rendezvous::BlockingSocket::begin_to_connect(address);
    if (!begun) return begun.error();
    DaemonSocket socket(*std::move(begun));
    const Use use(interruption, socket.wire());
    if (!use.is_wanted) return Error{Errc::timed_out, "the question was ended"};
    if (const auto connected = socket.wire().wait_until_connected(deadline); !connected)
        return Error{connected.error().code, cat(address.numeric(), ": ", connected.error().context)};
    if (key)
        if (auto proven = socket.begin_tls(*key, deadline); !proven) return proven.error();
    if (auto sent = socket.send(question, deadline); !sent) return sent.error();
    std::string answer;
    for (;;) {
        const auto piece = socket.receive(deadline);
        if (!piece && piece.error().code == Errc::peer_closed) return parse(answer);
        if (!piece) return piece.error();
        answer.append(*piece);
        if (answer.size() > page_bytes_max) return Error{Errc::limit_exceeded, "its page is longer than 64 MiB"};
    }
}

}  // namespace

void Interruption::stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (socket_ != nullptr) socket_->interrupt();
}

bool Interruption::use(const rendezvous::BlockingSocket* socket) {
    const std::lock_guard lock(mutex_);
    socket_ = socket;
    return !stopped_;
}

Result<HttpAnswer> http_get(const std::vector<SocketAddress>& addresses, const std::string& target,
                            const std::optional<rendezvous::ControlKey>& key, Instant deadline,
                            Interruption* interruption) {
    Error last{Errc::not_found, "it has no address"};
    for (const auto& address : addresses) {
        const auto question =
            cat("GET ", target, " HTTP/1.1\r\nHost: ",
                address.numeric().find(':') == std::string::npos ? address.numeric() : cat("[", address.numeric(), "]"),
                "\r\nConnection: close\r\n\r\n");
        auto got = get_at(address, question, key, deadline, interruption);
        if (got) return got;
        last = got.error();
    }
    return last;
}

}  // namespace muster::launcher
