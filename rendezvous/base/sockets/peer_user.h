// The user at the other end of a Unix socket, as the kernel attests it.
#pragma once

#include <sys/types.h>

#include <optional>

namespace muster {

/// The effective user id that the peer had when it called connect() or listen(), in this process's user namespace
/// (65534 for a user who has no number there). Nothing where the kernel reports none.
std::optional<uid_t> peer_user(int socket);

/// True if the peer's user is this process's effective one. Root is another user.
bool peer_is_our_user(int socket);

}  // namespace muster
