// The addresses that this node advertises in `Join`. The best one is MASTER_ADDR if this node has group rank 0.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/launch_config.h"

namespace muster::launcher {

/// Best first: only loopback if the job has one node and no spares, else only --local-addr if it is given, else only
/// loopback if the endpoint is loopback. Else the kernel's source address
/// towards the endpoint, this host's addresses among the endpoint's, and the other addresses of its interfaces.
/// Numeric, to avoid a dependency on a name service. `endpoint_addresses` is the endpoint's host, resolved. It may be
/// empty.
std::vector<std::string> advertised_addresses(const LaunchConfig& config,
                                              const std::vector<std::string>& endpoint_addresses);

}  // namespace muster::launcher
