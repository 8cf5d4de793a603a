// The control group that limits the memory of this process and its workers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/diagnosis/end_cause.h"

namespace muster::agent {

/// "oom_kill N" of such a file as FoundMemoryGroup::oom_file, or of /proc/vmstat.
std::optional<std::int64_t> count_oom_kills(const std::string& file);

struct FoundMemoryGroup {
    MemoryGroup group;
    std::string oom_file;   ///< v2: memory.events, v1: memory.oom_control. Both have a line "oom_kill N".
    std::string peak_file;  ///< File with the peak use under that limit. v2 has none before Linux 5.19.
    /// "memory.oom.group" of a group from here upwards, where it says 1: the kernel ends this process with the worker.
    std::string kills_all;

    /// Out-of-memory kills so far; empty: it cannot be read.
    [[nodiscard]] std::optional<std::int64_t> count_kills() const { return count_oom_kills(oom_file); }
    [[nodiscard]] std::int64_t peak_bytes() const;  ///< -1: unknown.
};

/// The nearest group upwards that counts kills. Empty where there is none: then only the host counts.
std::optional<FoundMemoryGroup> find_memory_group();
/// The same, from the texts of /proc/self/mountinfo and /proc/self/cgroup.
std::optional<FoundMemoryGroup> find_memory_group(std::string_view mountinfo, std::string_view cgroup);

}  // namespace muster::agent
