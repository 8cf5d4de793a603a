#include "worker_runtime/context/agent_link.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "rendezvous/base/sockets/datagram.h"
#include "rendezvous/base/sockets/peer_user.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/local/codec.h"
#include "worker_runtime/transport/poll_timeout.h"

namespace muster::runtime {

Result<FileDescriptor> AgentLink::reach(const std::string& address) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    if (address.size() < 2 || address[0] != '@' || address.size() >= sizeof name.sun_path) {
        return Error{Errc::invalid_argument,
                     cat("MUSTER_AGENT_SOCKET=", address, " is not an abstract address (@...)")};
    }
    address.copy(name.sun_path + 1, sizeof name.sun_path - 2, 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0) {
        Error error = error_from_errno(errno, cat("reach the agent at ", address));
        error.code = Errc::unreachable;
        return error;
    }
    if (const auto user = peer_user(socket.get()); user != ::geteuid()) {
        return Error{Errc::refused, cat("MUSTER_AGENT_SOCKET=", address, " is another user's (uid ",
                                        user ? cat(*user) : "unknown", "); this worker runs as uid ", ::geteuid())};
    }
    return socket;
}

Result<std::string> AgentLink::receive_ranks_key(const std::string& address, const std::string& token,
                                                 Instant deadline) {
    auto socket = reach(address);
    if (!socket) {
        auto error = socket.error();
        error.context = cat("this worker cannot get the key of this round's ranks: ", error.context);
        if (error.code == Errc::unreachable)
            error.context +=
                ". The agent has ended, or this program runs in another network namespace than its agent, "
                "as in a container of its own; give the container the host's network, or start muster "
                "inside of it";
        return error;
    }
    const auto trouble = [&](Errc code, std::string_view what, std::string_view advice) {
        return Error{code, cat("the agent at ", address, " ", what, " the key of this round's ranks", advice)};
    };
    const auto closed = [&] {
        return trouble(Errc::peer_closed, "closed the connection without sending",
                       token.empty()
                           ? ": MUSTER_AGENT_TOKEN is not set. Leave all MUSTER_ variables as muster set them "
                             "for this worker"
                           : ": it has ended, or MUSTER_AGENT_TOKEN is another worker's. Start the program "
                             "with the environment of its own worker");
    };
    if (send_datagram(socket->get(), local::encode(local::AskRanksKey{token})) != 0) return closed();
    for (;;) {
        pollfd ready{socket->get(), POLLIN, 0};
        const int count = ::poll(&ready, 1, poll_timeout_ms(deadline, std::chrono::steady_clock::now()));
        if (count == 0)
            return trouble(Errc::timed_out, "did not send in time",
                           ": it is probably stopped or starved. Look at the muster process on this node");
        if (count < 0 && errno == EINTR) continue;
        auto datagram = receive_datagram(socket->get(), local::datagram_bytes_max, 1);
        if (!datagram && errno == EAGAIN) continue;
        if (!datagram || datagram->bytes.empty()) return closed();
        auto message = local::decode(datagram->bytes, local::Sender::agent);
        ::explicit_bzero(datagram->bytes.data(), datagram->bytes.size());
        if (message.has_error()) continue;
        if (auto* given = std::get_if<local::RanksKey>(&message.value())) return std::move(given->key);
    }
}

Result<std::unique_ptr<AgentLink>> AgentLink::connect(const std::string& address, const std::string& token,
                                                      std::shared_ptr<FdWatch> watch, Heard heard,
                                                      std::function<void()> ended) {
    auto reached = MUSTER_TRY(reach(address));
    std::unique_ptr<AgentLink> link(
        new AgentLink(std::move(reached), std::move(watch), std::move(heard), std::move(ended)));
    link->send(local::Hello{.pid = ::getpid(), .runtime = "muster runtime", .token = token});
    link->watched_ = MUSTER_TRY(link->watch_->add(link->socket_, [body = link.get()] { return body->take_all(); }));
    return link;
}

AgentLink::AgentLink(FileDescriptor socket, std::shared_ptr<FdWatch> watch, Heard heard, std::function<void()> ended)
    : socket_(std::move(socket)), watch_(std::move(watch)), heard_(std::move(heard)), ended_(std::move(ended)) {}

AgentLink::~AgentLink() {
    if (watched_ != 0) watch_->remove(watched_);
}

bool AgentLink::send(const local::Message& message, const FileDescriptor* gift) {
    const int descriptor = gift != nullptr ? gift->get() : -1;
    const std::span<const int> beside(&descriptor, gift != nullptr ? 1 : 0);
    return send_datagram(socket_.get(), local::encode(message), beside) == 0;
}

bool AgentLink::take_all() {
    for (;;) {
        auto datagram = receive_datagram(socket_.get(), local::datagram_bytes_max, 1);
        if (!datagram && errno == EAGAIN) return true;
        if (!datagram || datagram->bytes.empty()) {  // the agent has gone; what follows comes from elsewhere
            if (ended_) ended_();
            return false;
        }
        FileDescriptor beside;
        if (!datagram->descriptors.empty()) beside = std::move(datagram->descriptors.front());
        if (const auto message = local::decode(datagram->bytes, local::Sender::agent))
            heard_(*message, std::move(beside));
    }
}

}  // namespace muster::runtime
