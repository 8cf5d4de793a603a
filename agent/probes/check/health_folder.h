// The checks of a site in a folder (/etc/muster/health.d).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace muster::agent {

struct HealthFolder {
    std::vector<std::string> programs;  ///< Paths of the executables, in order of their names.
    std::vector<std::string> refused;   ///< A sentence for each that must not run, and for what else is wrong.
};

/// A folder that does not exist is an empty one. Whoever may write to a check, or to the folder, runs programs as the
/// user of every job: only those of `owner` run (root, but for tests), and none that its group or others can write.
/// Files that are not executable, and those whose name begins with a dot, are not looked at.
HealthFolder read_health_folder(const std::string& folder, uid_t owner = 0);

struct CheckToRun {
    std::string program;  ///< Behind all links: what was judged is what runs, and by the name it expects.
    std::string refused;  ///< A sentence; empty: it may run.
};

/// To be asked just before the start.
CheckToRun check_to_run(const std::string& path, uid_t owner = 0);

}  // namespace muster::agent
