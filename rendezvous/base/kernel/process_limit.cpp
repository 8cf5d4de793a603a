#include "rendezvous/base/kernel/process_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "rendezvous/base/kernel/cgroup_mounts.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

using Group = ProcessLimits::Group;

std::optional<std::uint64_t> number_in(const std::string& path) {
    std::uint64_t number = 0;
    if (!parse_number(trim(read_file(path)), number)) return std::nullopt;  // "max", or no file
    return number;
}

void add_groups(std::vector<Group>& groups, std::string own) {
    for (const auto& path : group_and_ancestors(std::move(own))) {
        const auto max = number_in(cat(path, "/pids.max"));
        const auto count = number_in(cat(path, "/pids.current"));
        if (max && count) groups.push_back({path, *max, *count});
    }
}

/// The kernel applies RLIMIT_NPROC neither to root nor to who may set limits or administer the system.
bool is_exempt() {
    constexpr std::uint64_t sys_admin = std::uint64_t{1} << 21;
    constexpr std::uint64_t sys_resource = std::uint64_t{1} << 24;
    if (::getuid() == 0) return true;
    const auto status = read_file("/proc/self/status");
    for (const auto line : split(status, '\n')) {
        constexpr std::string_view effective = "CapEff:";
        if (!line.starts_with(effective)) continue;
        const auto digits = trim(line.substr(effective.size()));
        std::uint64_t mask = 0;
        std::from_chars(digits.data(), digits.data() + digits.size(), mask, 16);
        return (mask & (sys_admin | sys_resource)) != 0;
    }
    return false;
}

std::string describe(const Group& group) {
    return cat("pids.max = ", group.max, " of the control group ", group.path, " (it holds ", group.count, ")");
}

}  // namespace

ProcessLimits find_process_limits() {
    ProcessLimits limits;
    const auto mounts = read_file("/proc/self/mountinfo");
    const auto own = read_file("/proc/self/cgroup");
    add_groups(limits.groups, own_cgroup_directory(mounts, own));
    add_groups(limits.groups, own_v1_cgroup_directory(mounts, own, "pids"));
    rlimit user{};
    if (::getrlimit(RLIMIT_NPROC, &user) == 0 && user.rlim_cur != RLIM_INFINITY && !is_exempt())
        limits.user_max = user.rlim_cur;
    limits.threads_max = number_in("/proc/sys/kernel/threads-max").value_or(0);
    limits.pid_max = number_in("/proc/sys/kernel/pid_max").value_or(0);
    return limits;
}

std::string describe_reached_limit(const ProcessLimits& limits) {
    const auto& groups = limits.groups;
    const auto full = std::ranges::find_if(groups, [](const Group& group) { return group.count >= group.max; });
    if (full != groups.end()) return describe(*full);
    if (limits.user_max) return cat("RLIMIT_NPROC = ", *limits.user_max, " (ulimit -u) of this user");
    const auto lowest = std::ranges::min_element(groups, {}, &Group::max);
    if (lowest != groups.end()) return describe(*lowest);
    return cat("kernel.threads-max = ", limits.threads_max, " or kernel.pid_max = ", limits.pid_max);
}

std::string reached_process_limit() {
    return describe_reached_limit(find_process_limits());
}

}  // namespace muster
