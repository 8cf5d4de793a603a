#include "worker_runtime/transport/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// Where a version of cgroups says what.
struct CgroupFiles {
    const char* mount;
    const char* limit;
    const char* used;
    const char* inactive;  ///< with `active`, page cache: lines of memory.stat
    const char* active;
};
constexpr CgroupFiles version_1{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                "total_inactive_file", "total_active_file"};
constexpr CgroupFiles version_2{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file", "active_file"};

/// A cgroup file that holds one number; the largest one for "max" and where there is none.
std::size_t cgroup_number(const std::string& path) {
    std::size_t value = 0;
    return parse_number(first_line(path), value) ? value : unlimited;
}

/// The kernel drops page cache before it refuses memory. (Of tmpfs and shared memory it cannot: these are not in it.)
std::size_t page_cache_bytes(const std::string& folder, const CgroupFiles& files) {
    std::ifstream stat(folder + "/memory.stat");
    std::string name;
    std::size_t value = 0;
    std::size_t sum = 0;
    while (stat >> name >> value)
        if (name == files.inactive || name == files.active) sum += value;
    return sum;
}

std::size_t left_in(const std::string& folder, const CgroupFiles& files) {
    const auto limit = cgroup_number(folder + files.limit);
    const auto used = cgroup_number(folder + files.used);
    if (limit == unlimited || used == unlimited) return unlimited;
    const auto held = used - std::min(used, page_cache_bytes(folder, files));
    return limit - std::min(limit, held);
}

/// What the memory controllers leave from this process's cgroup up to the root of the mount, which in a container is
/// the container's own cgroup: with or without a namespace that says so.
std::size_t cgroup_left_bytes(const std::string& root) {
    std::ifstream file(root + "/proc/self/cgroup");
    std::string line;
    std::size_t left = unlimited;
    while (std::getline(file, line)) {
        // "4:cpuset,memory:/job" or "0::/job".
        const auto controllers = line.find(':') + 1;
        const auto path_at = line.find(":/", controllers);
        if (controllers == 0 || path_at == std::string::npos) continue;
        const std::string named = cat(",", line.substr(controllers, path_at - controllers), ",");
        const bool is_version_2 = line.starts_with("0::/");
        if (!is_version_2 && named.find(",memory,") == std::string::npos) continue;
        const auto& files = is_version_2 ? version_2 : version_1;
        std::string path = line.substr(path_at + 1);
        while (path.ends_with('/')) path.pop_back();
        for (;; path.resize(path.rfind('/'))) {
            left = std::min(left, left_in(cat(root, files.mount, path), files));
            if (path.empty()) break;
        }
    }
    return left;
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
    return std::min(cgroup_left_bytes(root), host_left_bytes(root));
}

}  // namespace muster::runtime
