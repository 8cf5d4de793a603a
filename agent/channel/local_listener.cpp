#include "agent/channel/local_listener.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

Result<FileDescriptor> listen_locally(std::string_view address, std::string_view whom) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path + 1, sizeof name.sun_path - 2);  // the first byte stays zero: an abstract address
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) return error_from_errno(errno, cat("make the socket for ", whom));
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) != 0 ||
        ::listen(socket.get(), SOMAXCONN) != 0)
        return error_from_errno(errno, cat("listen for ", whom, " at @", address));
    return socket;
}

bool has_hung_up(int socket) {
    pollfd peer{socket, 0, 0};
    return ::poll(&peer, 1, 0) == 1 && (peer.revents & POLLHUP) != 0;
}

}  // namespace muster::agent
