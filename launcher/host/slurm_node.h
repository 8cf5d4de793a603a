// Resolves Slurm node names that no name service knows: slurm.conf may give a NodeName its own address.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::launcher {

/// The numeric addresses of the node's NodeAddr according to scontrol. Empty without scontrol, for an unknown node, or
/// if NodeAddr is `name` itself. Blocks for at most `limit` for each of scontrol and a lookup, or until `is_stopping`,
/// polled every 20 ms, returns true.
std::vector<std::string> slurm_node_addresses(const std::string& name, Duration limit,
                                              const std::function<bool()>& is_stopping);

}  // namespace muster::launcher
