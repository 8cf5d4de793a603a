#include "rendezvous/base/kernel/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>

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

std::size_t lowest_memory_limit(std::string directory, const std::string& file) {
    std::size_t lowest = 0;
    for (; !directory.empty(); directory.resize(directory.rfind('/'))) {
        std::uint64_t limit = 0;  // "max": no limit
        if (parse_number(first_line(cat(directory, '/', file)), limit) && limit > 0)
            lowest = lowest == 0 ? limit : std::min<std::size_t>(lowest, limit);
        if (directory.rfind('/') == std::string::npos) break;
    }
    return lowest;
}

std::size_t memory_budget_bytes() {
    const auto mounts = read_file("/proc/self/mountinfo");
    const auto own = read_file("/proc/self/cgroup");
    const auto host = host_memory_bytes();
    auto limit = host == 0 ? 2 * unlimited_bytes_max : host;
    bool is_limited = false;
    for (const auto group :
         {lowest_memory_limit(own_cgroup_directory(mounts, own), "memory.max"),
          lowest_memory_limit(own_v1_cgroup_directory(mounts, own, "memory"), "memory.limit_in_bytes")}) {
        // Without a limit v1 shows a number that no host has.
        if (group == 0 || group >= limit) continue;
        limit = group;
        is_limited = true;
    }
    return is_limited ? limit / 2 : std::min(limit / 2, unlimited_bytes_max);
}

}  // namespace muster
