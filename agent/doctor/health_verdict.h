// What a site's own health check (--health-check) found. Pure.
#pragma once

#include <string>
#include <string_view>

namespace muster::agent {

struct HealthVerdict {
    enum class State { healthy, sick, unknown };
    State state = State::unknown;
    std::string why;  ///< One sentence, for the two others.
    friend bool operator==(const HealthVerdict&, const HealthVerdict&) = default;
};

/// The line that the check's shell prints before the check's output: without it the shell did not start.
inline constexpr std::string_view health_begin_line = "muster-health-begin";
/// The line that it prints behind the check's own output, before the exit code.
inline constexpr std::string_view health_exit_line = "muster-health-exit ";

/// Of the output: exit code 0 is healthy, as Slurm's HealthCheckProgram and LBNL NHC have it; else the last line of the
/// output is the reason. 126 and 127 mean that the check could not run, and without an exit code it did not end within
/// `limit`: both are unknown, because a check that is broken says nothing about its node.
HealthVerdict read_health(std::string_view output, std::string_view limit);

}  // namespace muster::agent
