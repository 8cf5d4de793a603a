// A pty for a worker's stderr, so that progress bars and colours work as on a terminal.
#pragma once

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

struct PseudoTerminal {
    FileDescriptor ours;  ///< Read side, non-blocking. Reading fails with EIO after the last close of the other side.
    FileDescriptor workers;  ///< Not a controlling terminal of any process.
};

/// With the window size of `like_fd`, if that is a terminal, and without any translation of the bytes: the terminal at
/// the launcher's end does that once.
Result<PseudoTerminal> open_pseudo_terminal(int like_fd);

}  // namespace muster::agent
