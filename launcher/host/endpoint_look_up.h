// Resolves the names of --rdzv-endpoint once at the start, to decide whether this node hosts the rendezvous.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// Returns for each endpoint the numeric addresses of its host, empty if it has none or the lookup timed out. Resolves
/// all names in parallel. Blocks for at most `limit`, or until `is_stopping`, polled every 20 ms, returns true. Numeric
/// hosts need no lookup.
std::vector<std::vector<std::string>> look_up_endpoints(const std::vector<Endpoint>& endpoints, Duration limit,
                                                        const std::function<bool()>& is_stopping);

/// The numeric addresses of a Slurm node whose name no name service knows: slurm.conf may give a NodeName its own
/// NodeAddr, which scontrol prints. Empty without scontrol, for an unknown node, or if NodeAddr is `name` itself.
/// Blocks for at most `limit` for each of scontrol and a lookup, or until `is_stopping`, as above.
std::vector<std::string> slurm_node_addresses(const std::string& name, Duration limit,
                                              const std::function<bool()>& is_stopping);

}  // namespace muster::launcher
