// How often a node sends a heartbeat. Pure, and the same for both ends: the daemon tells the pace of a round
// (Assigned::heartbeat_ms), and an agent that has not been told yet takes that of its job.
//
// The slowest pace follows from the times of fencing (rendezvous/STATES.md): a node that is cut off in one direction is
// last heard one pace after the cut and replaced 1.1 lease later, and that must be within 1.2 lease. The members of a
// round that lose their daemon agree on it 0.1 lease before the first of them would kill its workers, if their last
// answered heartbeats lie no more than 0.1 lease apart.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace muster::native {

/// From all nodes of a job. A heartbeat costs the daemon 10 to 14 us, so these take about a quarter of its one thread.
inline constexpr std::uint32_t heartbeats_per_second = 20'000;

/// The smaller ones of small rounds cost little, and show a loss sooner.
inline Duration fastest_heartbeat(Duration lease) {
    return lease / 20;
}

inline Duration slowest_heartbeat(Duration lease) {
    return lease / 10;
}

/// What a daemon tells, within what the lease allows: 0 is no word of it.
inline Duration bounded_heartbeat(Duration lease, Duration told) {
    return std::clamp(told, fastest_heartbeat(lease), slowest_heartbeat(lease));
}

inline Duration heartbeat_pace(Duration lease, std::uint32_t nodes, std::uint32_t per_second = heartbeats_per_second) {
    return bounded_heartbeat(lease, Duration{1s} * nodes / per_second);
}

/// The shortest lease of so many nodes that keeps to heartbeats_per_second.
inline Duration lease_for(std::uint32_t nodes, std::uint32_t per_second = heartbeats_per_second) {
    return Duration{10s} * nodes / per_second;
}

}  // namespace muster::native
