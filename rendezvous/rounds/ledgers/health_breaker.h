// How many nodes may park because their own health check found the same thing. Pure.
//
// A check that is broken, or a site that has changed, makes all nodes sick at once: it must not empty the cluster.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::rendezvous {

/// Nodes of `node_count` that may park for one finding: a twentieth, and always one.
std::uint32_t parked_max(std::uint32_t node_count);

/// What two nodes must have in common to count as one finding: the text without numbers and without the node's host.
std::string finding_key(std::string_view finding, std::string_view host);

}  // namespace muster::rendezvous
