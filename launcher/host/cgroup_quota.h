// The number of CPUs that cgroups allow this process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::launcher {

/// The lowest quota of this process's cgroup and its ancestors, in CPUs, rounded up; v2 (cpu.max) and v1
/// (cpu.cfs_quota_us). 0: no quota. `mounts` is the mount point of the hierarchies, `groups` the text of
/// /proc/self/cgroup.
std::uint32_t cgroup_cpu_quota(const std::string& mounts, std::string_view groups);

/// The quota of this process.
std::uint32_t cgroup_cpu_quota();

}  // namespace muster::launcher
