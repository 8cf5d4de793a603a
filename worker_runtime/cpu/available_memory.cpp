#include "worker_runtime/cpu/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "rendezvous/base/first_line.h"
#include "rendezvous/base/text.h"

namespace muster::runtime {

namespace {

/// A cgroup file that holds one number; the largest one for "max" and where there is none.
std::size_t cgroup_number(const std::string& path) {
    std::size_t value = 0;
    return parse_number(first_line(path), value) ? value : std::numeric_limits<std::size_t>::max();
}

/// What the memory controllers on the way up leave (cgroup v2; elsewhere the host decides alone).
std::size_t cgroup_left_bytes() {
    constexpr auto none = std::numeric_limits<std::size_t>::max();
    std::ifstream file("/proc/self/cgroup");
    std::string line;
    std::size_t left = none;
    while (std::getline(file, line)) {
        if (!line.starts_with("0::/")) continue;
        for (std::string path = line.substr(3); path.size() > 1; path.resize(path.rfind('/'))) {
            const auto limit = cgroup_number(cat("/sys/fs/cgroup", path, "/memory.max"));
            const auto used = cgroup_number(cat("/sys/fs/cgroup", path, "/memory.current"));
            if (limit != none && used != none) left = std::min(left, limit > used ? limit - used : 0);
        }
    }
    return left;
}

std::size_t host_left_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string line;
    while (std::getline(file, line)) {
        if (!line.starts_with("MemAvailable:")) continue;
        std::size_t kib = 0;
        const auto words = split(trim(std::string_view(line).substr(13)), ' ');
        if (parse_number(words.front(), kib)) return kib * 1024;
    }
    return std::numeric_limits<std::size_t>::max();
}

}  // namespace

std::size_t available_memory_bytes() {
    return std::min(cgroup_left_bytes(), host_left_bytes());
}

}  // namespace muster::runtime
