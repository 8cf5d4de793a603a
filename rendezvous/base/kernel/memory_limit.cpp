#include "rendezvous/base/kernel/memory_limit.h"

#include <unistd.h>

#include <algorithm>

#include "rendezvous/base/kernel/cgroup_mounts.h"
#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

constexpr std::size_t unlimited_bytes_max = std::size_t{4} << 30;

/// 0: not known.
std::size_t host_memory_bytes() {
    const auto pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) : 0;
}

}  // namespace

std::vector<MemoryGroup> memory_groups(const std::string& root) {
    const auto mounts = read_file(root + "/proc/self/mountinfo");
    const auto own = read_file(root + "/proc/self/cgroup");
    std::vector<MemoryGroup> groups;
    for (const auto& directory : group_and_ancestors(own_cgroup_directory(mounts, own)))
        groups.push_back({root + directory, "memory.max", "memory.current", "inactive_file", "active_file"});
    for (const auto& directory : group_and_ancestors(own_v1_cgroup_directory(mounts, own, "memory")))
        groups.push_back({root + directory, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                          "total_active_file"});
    return groups;
}

std::size_t memory_budget_bytes() {
    // The table of mounts is long in a container, and a launcher asks three times in its first milliseconds.
    static const auto bytes = memory_budget_bytes("");
    return bytes;
}

std::size_t memory_budget_bytes(const std::string& root) {
    const auto host = host_memory_bytes();
    auto limit = host == 0 ? 2 * unlimited_bytes_max : host;
    bool is_limited = false;
    for (const auto& group : memory_groups(root)) {
        std::size_t bytes = 0;  // "max": no limit. Without one v1 shows a number that no host has.
        if (!parse_number(first_line(cat(group.directory, '/', group.limit_file)), bytes) || bytes == 0) continue;
        if (bytes >= limit) continue;
        limit = bytes;
        is_limited = true;
    }
    return is_limited ? limit / 2 : std::min(limit / 2, unlimited_bytes_max);
}

}  // namespace muster
