// Checks before a run that enough file descriptors are available.
#pragma once

#include <cstdint>

#include "rendezvous/base/error.h"

namespace muster::launcher {

/// Raises this process's limit of open files as far as the host allows, and checks that a run with this number of
/// workers has enough descriptors. Without one for its connection an agent would retry until the join timeout. The
/// error has the available number and how to raise it. Call it after the fork of the guardian, so that workers keep the
/// user's limit.
Result<void> check_open_files(std::uint32_t worker_count);

}  // namespace muster::launcher
