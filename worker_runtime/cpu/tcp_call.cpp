#include "worker_runtime/cpu/tcp_call.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>

#include "rendezvous/base/text.h"
#include "worker_runtime/cpu/tcp_limits.h"
#include "worker_runtime/cpu/tcp_socket.h"

namespace muster::runtime {

bool receive_more(const FileDescriptor& socket, std::span<std::byte> bytes, std::size_t& size) {
    const auto got = ::recv(socket.get(), bytes.data() + size, bytes.size() - size, 0);
    if (got > 0) size += static_cast<std::size_t>(got);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

// ---- calls ----

Result<void> TcpCall::dial(Instant now) {
    int failure = 0;
    socket_ = begin_connect(to_, failure);
    if (failure != 0) return fail(failure, now);
    state_ = State::connecting;
    due_ = no_deadline;
    answer_size_ = 0;
    return {};
}

short TcpCall::events() const {
    return state_ == State::connecting ? POLLOUT : POLLIN;
}

/// Refused is final: whoever has published a port listens there until its group stands.
Result<void> TcpCall::fail(int failure, Instant now) {
    trouble_ = std::strerror(failure);
    socket_.reset();
    state_ = State::waiting;
    due_ = now + connect_retry_delay;
    if (failure == EMFILE || failure == ENFILE) return Error{Errc::limit_exceeded, "no file descriptor is left"};
    if (failure != ECONNREFUSED) return {};
    return Error{Errc::unreachable, "refused the connection: it has ended, or a firewall is between"};
}

Result<void> TcpCall::serve(Instant now) {
    if (state_ == State::connecting) {
        if (const int failure = connect_failure(socket_); failure != 0) return fail(failure, now);
        const auto hello = encode(hello_);
        const auto sent = ::send(socket_.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
        // The first bytes of a connection always fit.
        if (sent != static_cast<ssize_t>(hello.size())) return fail(ECONNRESET, now);
        state_ = State::greeted;
        trouble_ = "connected, but no answer to the greeting";
        return {};
    }
    if (!receive_more(socket_, answer_, answer_size_)) return fail(ECONNRESET, now);
    if (answer_size_ < answer_.size()) return {};
    if (answer_ != own_token_) return Error{Errc::refused, "is another program by now"};
    state_ = State::established;
    return {};
}

// ---- probes ----

void TcpProbe::begin(const SocketAddress& to, Instant now) {
    int failure = 0;
    socket_ = begin_connect(to, failure);
    due_ = failure == 0 ? no_deadline : now + probe_interval;
}

bool TcpProbe::refused(Instant now) {
    const bool refused = connect_failure(socket_) == ECONNREFUSED;
    socket_.reset();
    due_ = now + probe_interval;
    return refused;
}

}  // namespace muster::runtime
