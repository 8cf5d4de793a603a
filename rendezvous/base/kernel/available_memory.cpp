#include "rendezvous/base/kernel/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/kernel/memory_limit.h"
#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// A cgroup file that holds one number; the largest one for "max" and where there is none.
std::size_t cgroup_number(const std::string& path) {
    std::size_t value = 0;
    return parse_number(first_line(path), value) ? value : unlimited;
}

/// The kernel drops page cache before it refuses memory. (Of tmpfs and shared memory it cannot: these are not in it.)
std::size_t page_cache_bytes(const MemoryGroup& group) {
    std::ifstream stat(group.directory + "/memory.stat");
    std::string name;
    std::size_t value = 0;
    std::size_t sum = 0;
    while (stat >> name >> value)
        if (name == group.inactive_in_stat || name == group.active_in_stat) sum += value;
    return sum;
}

std::size_t left_in(const MemoryGroup& group) {
    const auto limit = cgroup_number(cat(group.directory, '/', group.limit_file));
    const auto used = cgroup_number(cat(group.directory, '/', group.used_file));
    if (limit == unlimited || used == unlimited) return unlimited;
    const auto held = used - std::min(used, page_cache_bytes(group));
    return limit - std::min(limit, held);
}

std::size_t host_left_bytes(const std::string& root) {
    std::ifstream file(root + "/proc/meminfo");
    std::string line;
    while (std::getline(file, line)) {
        if (!line.starts_with("MemAvailable:")) continue;
        std::size_t kib = 0;
        const auto words = split(trim(std::string_view(line).substr(13)), ' ');
        if (parse_number(words.front(), kib)) return kib * 1024;
    }
    return unlimited;
}

}  // namespace

std::size_t available_memory_bytes(const std::string& root) {
    auto left = host_left_bytes(root);
    for (const auto& group : memory_groups(root)) left = std::min(left, left_in(group));
    return left;
}

}  // namespace muster
