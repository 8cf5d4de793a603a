#include "launcher/host/cgroup_quota.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "launcher/config/option_values.h"
#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

/// The cgroup of a controller ("" for v2) and its ancestors, relative to the mount point, which is "". In a container
/// the path is the host's, and the cgroup itself is mounted at the root.
std::vector<std::string> groups_of(std::string_view controller, std::string_view groups) {
    std::vector<std::string> found{std::string{}};
    for (const auto line : split(groups, '\n')) {
        const auto pieces = split(line, ':');
        if (pieces.size() < 3) continue;
        const auto controllers = split(pieces[1], ',');
        if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
        std::string path;
        for (const auto part : split(line.substr(pieces[0].size() + pieces[1].size() + 2), '/')) {
            if (part.empty()) continue;
            path += cat('/', part);
            found.push_back(path);
        }
    }
    return found;
}

/// The CPUs of "max 100000" (v2) or of quota and period (v1). 0: no limit.
std::uint32_t quota_of(std::string_view quota, std::string_view period) {
    const auto allowed = whole_number(quota, 1, std::int64_t{1} << 50);
    const auto of = whole_number(period, 1, std::int64_t{1} << 50);
    if (!allowed || !of) return 0;
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>((*allowed + *of - 1) / *of, 1, 1 << 20));
}

}  // namespace

std::uint32_t cgroup_cpu_quota(const std::string& mounts, std::string_view groups) {
    std::uint32_t lowest = 0;
    const auto keep = [&](std::uint32_t quota) {
        if (quota != 0) lowest = lowest == 0 ? quota : std::min(lowest, quota);
    };
    for (const auto& path : groups_of("", groups)) {
        const auto line = first_line(cat(mounts, path, "/cpu.max"));
        const auto words = split(line, ' ');
        if (words.size() == 2) keep(quota_of(words[0], words[1]));
    }
    for (const auto& path : groups_of("cpu", groups)) {
        const auto base = cat(mounts, "/cpu", path);
        keep(quota_of(first_line(base + "/cpu.cfs_quota_us"), first_line(base + "/cpu.cfs_period_us")));
    }
    return lowest;
}

std::uint32_t cgroup_cpu_quota() {
    std::ifstream file("/proc/self/cgroup");
    std::ostringstream text;
    text << file.rdbuf();
    return cgroup_cpu_quota("/sys/fs/cgroup", text.str());
}

}  // namespace muster::launcher
