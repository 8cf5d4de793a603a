// Reads a secret from a file, only if no other user can read or write it.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster {

inline constexpr std::size_t private_file_bytes_max = 4096;

/// True if only `user` and root can read and write a file of this mode and owner. A file of root's that `user` reads by
/// its group is allowed too (mode 0440 or 0640, `user` is not root): Kubernetes mounts a Secret this way.
bool is_private_to(uid_t user, mode_t mode, uid_t owner);

/// What is in it, without the line end behind it. `what` names it in the errors: "the secret's file". Refused
/// (permission_denied), with a sentence that says what to do: what is no file, is not private to this
/// user (is_private_to), is longer than 4 KiB, or is empty, to which `when_empty` is the advice.
/// After a success, other processes of this user cannot read the memory or environment of this one (ptrace, /proc/PID),
/// and it writes no core dump.
Result<std::string> read_private_file(const std::string& path, std::string_view what, std::string_view when_empty);

}  // namespace muster
