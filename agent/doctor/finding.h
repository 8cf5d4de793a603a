// One result of muster doctor.
#pragma once

#include <string>
#include <string_view>

namespace muster::agent {

/// In ascending order of what it means for the exit code: a critical finding precedes a check that could not look.
enum class Level { info, warning, unknown, critical };

struct Finding {
    std::string check;  ///< "shared-memory". `muster doctor explain` and --skip take this name.
    Level level = Level::info;
    std::string what;      ///< The thing that was measured, "/dev/shm".
    std::string measured;  ///< With its unit.
    std::string expected;
    std::string why;   ///< Why it matters.
    std::string mend;  ///< The command or the line to write.
    friend bool operator==(const Finding&, const Finding&) = default;
};

/// "info", "warning", "could not look", "critical".
std::string_view level_name(Level level);

}  // namespace muster::agent
