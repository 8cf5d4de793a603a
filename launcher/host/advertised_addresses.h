// Under which addresses the other nodes reach this one: what Join carries, and MASTER_ADDR when this is group rank 0.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/launch_config.h"

namespace muster::launcher {

/// Best first: --local-addr alone if it is given; loopback if the endpoint is loopback (all nodes are on this host);
/// else the address from which the kernel would reach the endpoint, this host's addresses among the endpoint's, and the
/// other addresses of its interfaces. Numeric, so that nobody depends on a name service.
/// `endpoint_addresses`: the endpoint's host, resolved; may be empty.
std::vector<std::string> advertised_addresses(const LaunchConfig& config,
                                              const std::vector<std::string>& endpoint_addresses);

}  // namespace muster::launcher
