#include "agent/memory_group.h"

#include <unistd.h>

#include "agent/process/worker_cgroup.h"
#include "rendezvous/base/read_file.h"
#include "rendezvous/base/text.h"

namespace muster::agent {

namespace {

/// What v1 writes for "none" is the largest multiple of a page; everything above an exbibyte is meant so.
constexpr std::int64_t no_limit_bytes = std::int64_t{1} << 60;

/// From `directory` upwards, as far as there are groups.
void find_limit(MemoryGroup& group, std::string directory, const char* file) {
    while (!directory.empty()) {
        const auto path = cat(directory, '/', file);
        std::int64_t bytes = 0;
        if (parse_number(trim(read_file(path)), bytes) && bytes < no_limit_bytes &&
            (group.limit_bytes < 0 || bytes < group.limit_bytes)) {
            group.limit_bytes = bytes;
            group.limited_by = path;
        }
        const auto above = directory.rfind('/');
        directory.resize(above == std::string::npos ? 0 : above);
        if (::access(cat(directory, "/cgroup.procs").c_str(), F_OK) != 0) break;
    }
}

std::optional<FoundMemoryGroup> found(std::string directory, const char* counter, const char* limit) {
    for (; !directory.empty(); directory.resize(directory.rfind('/') == std::string::npos ? 0 : directory.rfind('/'))) {
        auto file = cat(directory, '/', counter);
        if (::access(file.c_str(), R_OK) != 0) continue;
        FoundMemoryGroup made{{.path = directory, .limit_bytes = -1, .limited_by = {}}, std::move(file)};
        find_limit(made.group, directory, limit);
        return made;
    }
    return std::nullopt;
}

/// v1: the mount whose options name the memory controller, and the line "4:memory:/path" of /proc/self/cgroup.
std::string own_v1_directory(std::string_view mountinfo, std::string_view cgroup) {
    std::string path;
    for (const auto line : split(cgroup, '\n')) {
        const auto fields = split(line, ':');
        if (fields.size() < 3) continue;
        for (const auto controller : split(fields[1], ','))
            if (controller == "memory") path = line.substr(fields[0].size() + fields[1].size() + 2);
    }
    if (path.empty()) return {};
    for (const auto line : split(mountinfo, '\n')) {
        const auto dash = line.find(" - cgroup ");
        const auto fields = split(line, ' ');
        if (dash == std::string_view::npos || fields.size() < 5) continue;
        const auto options = line.substr(line.rfind(' ') + 1);
        for (const auto option : split(options, ',')) {
            if (option != "memory") continue;
            // In a container the mount shows a part of the hierarchy, whose root is the fourth field.
            std::string_view own = path;
            if (fields[3] != "/" && own.starts_with(fields[3])) own.remove_prefix(fields[3].size());
            return own == "/" || own.empty() ? std::string(fields[4]) : cat(fields[4], own);
        }
    }
    return {};
}

}  // namespace

std::optional<FoundMemoryGroup> find_memory_group() {
    const auto mountinfo = read_file("/proc/self/mountinfo");
    const auto cgroup = read_file("/proc/self/cgroup");
    if (auto v2 = found(own_cgroup_directory(mountinfo, cgroup), "memory.events", "memory.max")) return v2;
    return found(own_v1_directory(mountinfo, cgroup), "memory.oom_control", "memory.limit_in_bytes");
}

}  // namespace muster::agent
