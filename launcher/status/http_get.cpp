#include "launcher/status/http_get.h"

#include <utility>

#include "launcher/status/daemon_socket.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/sockets/reachable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::size_t page_bytes_max = std::size_t{64} << 20;

/// In clear text a connection that breaks looks like the end of an answer.
bool has_whole_body(std::string_view head, std::size_t body_bytes) {
    constexpr std::string_view length = "\r\nContent-Length: ";
    const auto at = head.find(length);
    if (at == std::string_view::npos) return true;
    const auto value = head.substr(at + length.size());
    std::size_t bytes = 0;
    return parse_number(value.substr(0, value.find('\r')), bytes) && bytes == body_bytes;
}

Result<HttpAnswer> parse(std::string answer) {
    constexpr std::string_view begin = "HTTP/1.1 ";
    const auto head_end = answer.find("\r\n\r\n");
    unsigned status = 0;
    if (answer.empty())
        return Error{Errc::peer_closed,
                     "it closed the connection without an answer; it may be about to end: try again"};
    if (!answer.starts_with(begin) || head_end == std::string::npos ||
        answer.find("\r\nServer: muster\r\n") > head_end ||
        !parse_number(std::string_view(answer).substr(begin.size(), 3), status))
        return Error{Errc::bad_frame, "its answer is not muster's; does another server own the port?"};
    if (!has_whole_body(std::string_view(answer).substr(0, head_end), answer.size() - head_end - 4))
        return Error{Errc::peer_closed,
                     "it closed the connection in the middle of its answer; it may be about to end: try again"};
    return HttpAnswer{status, std::move(answer.erase(0, head_end + 4))};
}

/// Lets an interruption use the socket while this lives.
struct Use {
    Use(Interruption* one, const rendezvous::BlockingSocket& socket)
        : interruption(one), is_wanted(one == nullptr || one->use(&socket)) {}
    ~Use() {
        if (interruption != nullptr) interruption->use(nullptr);
    }
    Use& operator=(Use&&) = delete;

    Interruption* interruption;
    bool is_wanted;
};

/// The refusal of a key, for the user.
Error refused(const DaemonSocket& socket) {
    if (socket.has_other_key())
        return {Errc::permission_denied,
                "it has another secret than this node, or is an older version of muster; set MUSTER_SECRET_FILE to its "
                "secret (the key of one job is not enough), or run the command on its host"};
    return {Errc::permission_denied,
            "it has no secret, and this node has one; run the command on its host, or let this one command ask in "
            "clear text: --insecure (an attacker on the path can answer so, too)"};
}

Result<HttpAnswer> get_at(const SocketAddress& address, const std::string& question, const Way& way, Instant deadline,
                          Interruption* interruption) {
    const auto named = [&](const Error& error) {
        // A network that forbids the way refuses no key: the next address is asked.
        const auto code = error.code == Errc::permission_denied ? Errc::unreachable : error.code;
        return Error{code, cat(address.numeric(), ": ", error.context)};
    };
    auto begun = rendezvous::BlockingSocket::begin_to_connect(address);
    if (!begun) return named(begun.error());
    DaemonSocket socket(*std::move(begun));
    const Use use(interruption, socket.wire());
    if (!use.is_wanted) return Error{Errc::timed_out, "the question was ended"};
    if (const auto connected = socket.wire().wait_until_connected(deadline); !connected)
        return named(connected.error());
    if (way)
        if (const auto proven = socket.begin_tls(*way, deadline); !proven)
            return proven.error().code == Errc::permission_denied ? refused(socket) : named(proven.error());
    if (const auto sent = socket.send(question, deadline); !sent) return named(sent.error());
    std::string answer;
    for (;;) {
        const auto piece = socket.receive(deadline);
        if (!piece && piece.error().code == Errc::peer_closed) return parse(std::move(answer));
        if (!piece) return named(piece.error());
        answer.append(*piece);
        if (answer.size() > page_bytes_max) return Error{Errc::limit_exceeded, "its page is longer than 64 MiB"};
    }
}

bool is_refused(const Result<HttpAnswer>& got) {
    return got ? got->status == 401 : got.error().code == Errc::permission_denied;
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
                            const std::vector<Way>& ways, std::size_t first, Instant deadline,
                            Interruption* interruption) {
    Result<HttpAnswer> got = Error{Errc::not_found, "it has no address"};
    for (const auto& address : rendezvous::reachable_first(addresses, deadline)) {
        const auto question =
            cat("GET ", target, " HTTP/1.1\r\nHost: ",
                address.numeric().find(':') == std::string::npos ? address.numeric() : cat("[", address.numeric(), "]"),
                "\r\nConnection: close\r\n\r\n");
        const auto ask = [&](std::size_t at, const Way& way) {
            got = get_at(address, question, way, deadline, interruption);
            if (got) got->way = at;
        };
        const bool is_near = is_loopback(address.numeric());
        ask(first, is_near ? Way() : ways[first]);
        for (std::size_t at = 0; !is_near && is_refused(got) && at < ways.size(); ++at)
            if (at != first) ask(at, ways[at]);
        if (got || is_refused(got)) break;
    }
    return got;
}

}  // namespace muster::launcher
