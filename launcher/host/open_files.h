// Descriptors for a run, looked for before it begins.
#pragma once

#include <cstdint>

#include "rendezvous/base/error.h"

namespace muster::launcher {

/// Raises this process's own limit of open files as far as the host allows, and tries whether as many descriptors can
/// be had as a run with so many workers needs: without one for its connection an agent would try to join until the join
/// time-out. The error says how many there are and how to get more. Call it after the guardian has been forked, so that
/// workers keep the limit that the user gave them.
Result<void> check_open_files(std::uint32_t worker_count);

}  // namespace muster::launcher
