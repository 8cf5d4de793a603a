#include "rendezvous/base/sockets/peer_user.h"

#include <sys/socket.h>
#include <unistd.h>

namespace muster {

std::optional<uid_t> peer_user(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
    return peer.uid;
}

bool peer_is_our_user(int socket) {
    return peer_user(socket) == ::geteuid();
}

}  // namespace muster
