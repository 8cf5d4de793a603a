// The control group that limits the memory of this process, and of the workers below it.
#pragma once

#include <optional>
#include <string>

#include "agent/core/end_cause.h"

namespace muster::agent {

struct FoundMemoryGroup {
    MemoryGroup group;
    std::string oom_file;  ///< v2: memory.events, v1: memory.oom_control; both have a line "oom_kill N"
};

/// From /proc/self/cgroup and /proc/self/mountinfo; the nearest group upwards that counts kills. Empty where there is
/// none: then only the host counts.
std::optional<FoundMemoryGroup> find_memory_group();

}  // namespace muster::agent
