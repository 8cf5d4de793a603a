// What a node tells rank 0 about itself before the first test.
#pragma once

#include <string>

namespace muster::runtime {

/// This host's type, equal on machines that should be equally fast: models of its CPU, GPUs and network cards. What the
/// kernel does not tell is left out.
std::string machine_type();

/// The networks of the addresses that ranks on this host tell others (shared_networks.h).
std::string own_networks(const std::string& store_host);

}  // namespace muster::runtime
