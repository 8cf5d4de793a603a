// Locks of files that keep two processes apart. The kernel ends such a lock with its owner.
#pragma once

#include <sys/types.h>

#include <string>

#include "rendezvous/base/file_descriptor.h"

namespace muster {

/// Opens the file and locks it, without waiting, until the descriptor is closed. `flags`: O_CREAT, with `mode`, or 0.
/// Links are not followed, and a pipe does not block. Invalid with the reason in errno; EWOULDBLOCK: the file is locked
/// already.
FileDescriptor open_locked(const std::string& path, int flags = 0, mode_t mode = 0600);

}  // namespace muster
