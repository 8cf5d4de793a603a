#include "agent/evidence/memory_group.h"

#include <unistd.h>

#include "rendezvous/base/kernel/cgroup_mounts.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// What v1 writes for "none" is the largest multiple of a page; everything above an exbibyte is meant so.
constexpr std::int64_t no_limit_bytes = std::int64_t{1} << 60;

/// What the files of a group are called in its version.
struct FileNames {
    const char* counter;
    const char* limit;
    const char* peak;
};
constexpr FileNames second_version{"memory.events", "memory.max", "memory.peak"};
constexpr FileNames first_version{"memory.oom_control", "memory.limit_in_bytes", "memory.max_usage_in_bytes"};

/// From its group upwards, as far as there are groups.
void find_limit(FoundMemoryGroup& found, const FileNames& names) {
    auto& group = found.group;
    found.peak_file = cat(group.path, '/', names.peak);
    for (const auto& directory : group_and_ancestors(group.path)) {
        if (::access(cat(directory, "/cgroup.procs").c_str(), F_OK) != 0) break;
        const auto path = cat(directory, '/', names.limit);
        std::int64_t bytes = 0;
        if (parse_number(trim(read_file(path)), bytes) && bytes < no_limit_bytes &&
            (group.limit_bytes < 0 || bytes < group.limit_bytes)) {
            group.limit_bytes = bytes;
            group.limited_by = path;
            found.peak_file = cat(directory, '/', names.peak);
        }
        auto all = cat(directory, "/memory.oom.group");
        if (found.kills_all.empty() && trim(read_file(all)) == "1") found.kills_all = std::move(all);
    }
}

std::optional<FoundMemoryGroup> find_from(std::string own, const FileNames& names) {
    for (const auto& directory : group_and_ancestors(std::move(own))) {
        auto file = cat(directory, '/', names.counter);
        if (::access(file.c_str(), R_OK) != 0) continue;
        FoundMemoryGroup found;
        found.group.path = directory;
        found.oom_file = std::move(file);
        find_limit(found, names);
        return found;
    }
    return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> count_oom_kills(const std::string& file) {
    const auto text = read_file(file);
    for (const auto line : split(text, '\n')) {
        std::int64_t count = 0;
        if (line.starts_with("oom_kill ") && parse_number(line.substr(9), count)) return count;
    }
    return std::nullopt;
}

std::int64_t FoundMemoryGroup::peak_bytes() const {
    std::int64_t bytes = -1;
    return parse_number(trim(read_file(peak_file)), bytes) ? bytes : -1;
}

std::optional<FoundMemoryGroup> find_memory_group() {
    return find_memory_group(read_file("/proc/self/mountinfo"), read_file("/proc/self/cgroup"));
}

std::optional<FoundMemoryGroup> find_memory_group(std::string_view mountinfo, std::string_view cgroup) {
    if (auto second = find_from(own_cgroup_directory(mountinfo, cgroup), second_version)) return second;
    return find_from(own_v1_cgroup_directory(mountinfo, cgroup, "memory"), first_version);
}

}  // namespace muster::agent
