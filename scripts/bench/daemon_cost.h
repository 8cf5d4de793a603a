// What a process has cost so far, for benchmarks of the daemon.
#pragma once

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "scripts/bench/swarm.h"

namespace muster::bench {

/// Processor time, user's and system's, in seconds.
inline double cpu_of(const std::string& pid) {
    std::ifstream file("/proc/" + pid + "/stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto name_end = text.rfind(')');
    if (name_end == std::string::npos) fail("the daemon is gone");
    std::istringstream fields(text.substr(name_end + 2));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    double user = 0, system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// Resident memory, in MiB.
inline double memory_of(const std::string& pid) {
    std::ifstream file("/proc/" + pid + "/statm");
    double all = 0, resident = 0;
    file >> all >> resident;
    return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

}  // namespace muster::bench
