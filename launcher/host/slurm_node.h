// Where a node of Slurm's is that no name service knows: slurm.conf may give a NodeName an address of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::launcher {

/// The numeric addresses of the node's NodeAddr, asked of scontrol; empty where there is no scontrol, or it knows no
/// such node or no other name for it than this one. Blocks, at most `limit` for each of scontrol and a look-up, and not
/// when `in_haste` says so, which is asked every 20 ms.
std::vector<std::string> slurm_node_addresses(const std::string& name, Duration limit,
                                              const std::function<bool()>& in_haste);

}  // namespace muster::launcher
