// Finds the limit that refused a process or a thread to this process (EAGAIN).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster {

/// The limits on the number of processes that hold for this process, at one moment. Threads count as processes.
struct ProcessLimits {
    struct Group {
        std::string path;  ///< "/sys/fs/cgroup/pids/job"
        std::uint64_t max = 0;
        std::uint64_t count = 0;  ///< Processes in the group and below it.
    };
    std::vector<Group> groups;              ///< This process's control group and its parents, if they have a limit.
    std::optional<std::uint64_t> user_max;  ///< RLIMIT_NPROC. Empty: no limit, or the kernel does not apply it.
    std::uint64_t threads_max = 0;          ///< kernel.threads-max
    std::uint64_t pid_max = 0;              ///< kernel.pid_max
};

ProcessLimits find_process_limits();

/// Names the limit that is reached, and its value: "pids.max = 4 of the control group /sys/fs/cgroup/pids/job (it holds
/// 4)". Where none of the groups is full any more, the user's limit, then the lowest of the groups', then the kernel's.
/// Pure.
std::string describe_reached_limit(const ProcessLimits& limits);

/// The same for this process, at this moment. error_from_shortage() adds it to what was refused with EAGAIN.
std::string reached_process_limit();

}  // namespace muster
