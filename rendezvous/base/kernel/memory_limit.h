// How much memory a daemon may use for its peers, and where control groups limit the memory of this process.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace muster {

/// A control group that may limit this process's memory. Its files have other names in each version of cgroups.
struct MemoryGroup {
    std::string directory;
    const char* limit_file;        ///< memory.max (v2) or memory.limit_in_bytes (v1)
    const char* used_file;         ///< memory.current or memory.usage_in_bytes
    const char* inactive_in_stat;  ///< the name in memory.stat of the page cache that was not used lately, and ...
    const char* active_in_stat;    ///< ... of the other one
};

/// This process's own group and those above it, in version 2 and in version 1. Some may not exist. `root` replaces /
/// in tests.
std::vector<MemoryGroup> memory_groups(const std::string& root = {});

/// Half of the lowest memory limit of this process's control groups. Without a limit: half of the host's memory, at
/// most 4 GiB. Found out at the first call.
std::size_t memory_budget_bytes();
/// The same found out now. `root` as above.
std::size_t memory_budget_bytes(const std::string& root);

}  // namespace muster
