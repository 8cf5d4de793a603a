// Parses /proc/self/mountinfo and /proc/self/cgroup: the mount points of control groups and this process's groups.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// Where this process lives in the v2 hierarchy; empty if it has none, or if no mount shows it (a cgroup namespace
/// whose root is elsewhere: "0::/../x"). Hybrid layouts (v1 controllers, a v2 hierarchy beside them) are served:
/// killing needs no controller.
std::string own_cgroup_directory(std::string_view mountinfo, std::string_view cgroup);

/// The same in the v1 hierarchy of that controller.
std::string own_v1_cgroup_directory(std::string_view mountinfo, std::string_view cgroup, std::string_view controller);

/// `directory` and those above it, up to a mount's root and beyond: not all of them need to be groups. Empty for an
/// empty one.
std::vector<std::string> group_and_ancestors(std::string directory);

}  // namespace muster
