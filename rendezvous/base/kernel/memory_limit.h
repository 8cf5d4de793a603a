// How much memory a daemon may use for its peers.
#pragma once

#include <cstddef>
#include <string>

namespace muster {

/// The lowest memory limit of the control groups from `directory` upwards, in bytes: `file` is memory.max (v2) or
/// memory.limit_in_bytes (v1). 0: none is limited, or `directory` is empty.
std::size_t lowest_memory_limit(std::string directory, const std::string& file);

/// Half of the memory limit of this process's control groups. Without a limit: half of the host's memory, at most 4
/// GiB.
std::size_t memory_budget_bytes();

}  // namespace muster
