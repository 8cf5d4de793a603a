#include "worker_runtime/tcp/mesh/tcp_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"

namespace muster::runtime {

namespace {

/// Options are wishes: a kernel that lacks one serves us less well, but serves us.
void set_option(const FileDescriptor& socket, int level, int option, int value) {
    (void)::setsockopt(socket.get(), level, option, &value, sizeof value);
}

FileDescriptor tcp_socket(int family) {
    FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket.valid()) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    return socket;
}

}  // namespace

Result<FileDescriptor> listen_at(const std::string& address, int backlog) {
    const auto at = SocketAddress::from_numeric(address, 0);
    if (!at) return Error{Errc::invalid_argument, cat("\"", address, "\" is not a numeric IP address")};
    FileDescriptor socket = tcp_socket(at->family());
    if (!socket.valid() || ::bind(socket.get(), at->data(), at->size()) != 0 || ::listen(socket.get(), backlog) != 0) {
        return error_from_errno(errno, cat("listen at ", address));
    }
    return socket;
}

FileDescriptor begin_connect(const SocketAddress& to, int& failure) {
    FileDescriptor socket = tcp_socket(to.family());
    const bool begun = socket.valid() && (::connect(socket.get(), to.data(), to.size()) == 0 || errno == EINPROGRESS);
    failure = begun ? 0 : errno;
    if (!begun) socket.reset();
    return socket;
}

int connect_failure(const FileDescriptor& socket) {
    int failure = 0;
    socklen_t size = sizeof failure;
    return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &size) == 0 ? failure : errno;
}

FileDescriptor accept_from(const FileDescriptor& listener) {
    FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    return socket;
}

bool is_same_host(const FileDescriptor& socket) {
    SocketAddress peer;
    if (::getpeername(socket.get(), peer.writable_data(), peer.writable_size()) != 0) return false;
    return peer.numeric() == SocketAddress::local_of(socket.get()).numeric();
}

void set_send_buffer(int socket, int size_bytes) {
    (void)::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size_bytes, sizeof size_bytes);
}

void tune_data_socket(const FileDescriptor& socket) {
    if (is_same_host(socket)) set_send_buffer(socket.get(), same_host_send_buffer_bytes);
}

void tune_control_socket(const FileDescriptor& socket) {
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, keepalive_idle_s);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, keepalive_interval_s);
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, unreachable_host_timeout_ms);
}

}  // namespace muster::runtime
