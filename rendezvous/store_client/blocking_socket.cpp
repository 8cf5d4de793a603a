#include "rendezvous/store_client/blocking_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "rendezvous/base/sockets/tcp_options.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t buffer_bytes = 64 * 1024;

}  // namespace

Result<BlockingSocket> BlockingSocket::connect(const SocketAddress& address, Instant deadline) {
    auto socket = begin_to_connect(address);
    if (!socket) return socket;
    if (const auto done = socket->wait_until_connected(deadline); !done)
        return Error{done.error().code, cat(address.numeric(), ": ", done.error().context)};
    return socket;
}

Result<BlockingSocket> BlockingSocket::begin_to_connect(const SocketAddress& address) {
    BlockingSocket socket(FileDescriptor(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (!socket.descriptor_.valid()) return error_from_errno(errno, "socket");
    tune_stream(socket.descriptor_.get(), store_silence_max);
    if (::connect(socket.descriptor_.get(), address.data(), address.size()) != 0 && errno != EINPROGRESS)
        return Error{Errc::unreachable, error_from_errno(errno, address.numeric()).context};
    return socket;
}

Result<void> BlockingSocket::wait_until_connected(Instant deadline) const {
    if (!wait_for(POLLOUT, deadline)) return Error{Errc::timed_out, "no answer"};
    int failure = 0;
    socklen_t size = sizeof failure;
    getsockopt(descriptor_.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
    if (failure != 0) return Error{Errc::unreachable, std::generic_category().message(failure)};
    return {};
}

Result<void> BlockingSocket::wait_for(short events, Instant deadline) const {
    pollfd waiting{.fd = descriptor_.get(), .events = events, .revents = 0};
    for (;;) {
        const auto left = std::max(Duration::zero(), Duration(deadline - std::chrono::steady_clock::now()));
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
        const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = Duration(left - seconds).count()};
        const int count = ::ppoll(&waiting, 1, &timeout, nullptr);
        if (count > 0) return {};
        if (count == 0) return Error{Errc::timed_out, "the deadline passed"};
        if (errno != EINTR) return error_from_errno(errno, "poll");
    }
}

Result<void> BlockingSocket::send(std::string_view bytes, Instant deadline) {
    while (!bytes.empty()) {
        const auto sent = ::send(descriptor_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (auto ready = wait_for(POLLOUT, deadline); !ready) return ready;
        } else if (errno != EINTR) {
            return Error{Errc::peer_closed, error_from_errno(errno, "send").context};
        }
    }
    return {};
}

void BlockingSocket::interrupt() const {
    ::shutdown(descriptor_.get(), SHUT_RDWR);
}

void BlockingSocket::end_sending() const {
    ::shutdown(descriptor_.get(), SHUT_WR);
}

Result<std::string_view> BlockingSocket::receive(Instant deadline) {
    buffer_.resize(buffer_bytes);
    for (;;) {
        const auto received = ::recv(descriptor_.get(), buffer_.data(), buffer_.size(), 0);
        if (received > 0) return std::string_view(buffer_.data(), static_cast<std::size_t>(received));
        if (received == 0) return Error{Errc::peer_closed, "the server closed it"};
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (auto ready = wait_for(POLLIN, deadline); !ready) return ready.error();
        } else if (errno != EINTR) {
            return Error{Errc::peer_closed, error_from_errno(errno, "receive").context};
        }
    }
}

}  // namespace muster::rendezvous
