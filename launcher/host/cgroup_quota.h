// How many CPUs the kernel's control groups let this process use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::launcher {

/// The lowest quota of this process's group and of all groups above it, in CPUs, rounded up; v2 (cpu.max) and v1
/// (cpu.cfs_quota_us). 0: none of them has one. `mounts` is where the hierarchies are mounted, `groups` the text of
/// /proc/self/cgroup.
std::uint32_t cgroup_cpu_quota(const std::string& mounts, std::string_view groups);

/// Of this process.
std::uint32_t cgroup_cpu_quota();

}  // namespace muster::launcher
