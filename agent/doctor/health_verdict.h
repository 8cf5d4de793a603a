// What a site's own health check found. Pure.
#pragma once

#include <string>
#include <string_view>

namespace muster::agent {

struct HealthVerdict {
    enum class State { healthy, sick, unknown };
    State state = State::unknown;
    std::string why;  ///< One sentence, for the two others. Where it is healthy: what other checks did not say.
    friend bool operator==(const HealthVerdict&, const HealthVerdict&) = default;
};

/// Of what muster-check printed (agent/probes/check). Exit code 0 is healthy, as Slurm's HealthCheckProgram and LBNL
/// NHC have it; else the last line of the check's output is the reason. 126 and 127 mean that the check could not run:
/// that, and one that does not end within `limit`, is unknown, because a check that is broken says nothing about its
/// node.
HealthVerdict read_health(std::string_view output, std::string_view limit);

}  // namespace muster::agent
