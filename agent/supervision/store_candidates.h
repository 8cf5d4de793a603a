// The order in which a node tries the addresses of the workers' store, and the message for a user who waits. Pure.
#pragma once

#include <string>
#include <vector>

namespace muster::agent {

/// `addresses`: those that the node of group rank 0 advertises, best first. One that this host has as well is no way to
/// another host (each host may have the same 172.17.0.1 on a bridge of its own, and behind the same port a store of its
/// own), so it is left out; unless both have all of them, because they are one host. A link-local address gets the zone
/// of `daemon_address`, by which this node reaches the daemon ("fe80::1%eth0"), instead of its owner's.
std::vector<std::string> store_candidates(const std::vector<std::string>& addresses,
                                          const std::vector<std::string>& own_addresses,
                                          const std::string& daemon_address);

}  // namespace muster::agent
