// The user at the other end of a connection within this host, as the kernel attests it: the peer needs to prove
// nothing, and PyTorch's client works unchanged.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/sockets/socket_address.h"

namespace muster {

/// The effective user id that the peer of a Unix socket had when it called connect() or listen(), in this process's
/// user namespace. Nothing where the kernel reports none, or one that may be any of several users (`one_user`).
std::optional<uid_t> peer_user(int socket);

/// The user of this number, as the kernel reports it. In a user namespace that does not map all users, the kernel
/// reports each user without a number there as kernel.overflowuid (65534): nothing then, also where this process's own
/// user has no number. So nobody passes for anybody else by having none. Where the namespace has a network of its own,
/// no others are there, and the number counts.
std::optional<uid_t> one_user(uid_t number);

/// True if the peer's user is this process's effective one. Root is another user.
bool peer_is_our_user(int socket);

/// Whom a port serves among the users of its own host. Other hosts are a matter of the job's secret.
enum class LocalUsers {
    own,  ///< root and the user of this process, as the kernel reports the connection's other end
    all,
};

/// Looks the users of TCP connections up in the kernel's table of sockets (sock_diag(7)), and where a sandbox filters
/// netlink in /proc/net/tcp. Not thread-safe; one for each accepting thread. Costs about 5 us a connection.
class PeerUsers {
  public:
    PeerUsers();

    struct Holder {
        bool is_here = false;       ///< the socket belongs to this host (to this network namespace)
        std::optional<uid_t> user;  ///< empty: its process has closed it, and the kernel no longer knows whose it was
    };
    /// Who holds the socket at `peer` that is connected to `local`.
    [[nodiscard]] Holder find(const SocketAddress& peer, const SocketAddress& local);

    struct Judgement {
        bool is_own = false;    ///< the kernel attests that it is root's or this process's user's
        std::string objection;  ///< why it is not served: who it is, and whom this process serves. Empty: it is served
    };
    /// Of the accepted connection `fd` from `peer`. Those of other hosts are served and not our own.
    [[nodiscard]] Judgement judge(int fd, const SocketAddress& peer);

  private:
    FileDescriptor netlink_;
    OwnAddresses own_addresses_;
};

}  // namespace muster
