// The networks by which nodes may reach each other, such as two NICs of each node, or IPv4 and IPv6. A job's
// connections take the first address of a node that answers, so the test of pairs does not show that another one is a
// dead end. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "worker_runtime/pairs/group_search.h"

namespace muster::runtime {

struct SharedNetwork {
    std::string name;  ///< "10.2.0.0/24"
    NodeGroup nodes;
};

/// `by_node` has the networks of each node with its address there, and the interface's MTU where it is known:
/// "10.1.0.0/24=10.1.0.3,1500 fd00::/64=fd00::3". Those of several nodes; none where no node is in two of them. A
/// network in which most nodes have the same address is one inside each host, as Docker's.
std::vector<SharedNetwork> shared_networks(const std::vector<std::string>& by_node);

/// Nodes of a network that have the same MTU there.
struct MtuNodes {
    std::string network;
    int mtu = 0;
    NodeGroup nodes;
};

/// Those of each network in which the MTUs of several nodes differ. Nodes that share no network are not compared:
/// routers between them adapt the packets' size.
std::vector<MtuNodes> unlike_mtus(const std::vector<std::string>& by_node);

/// The address in the network of that name; empty if the node has none.
std::string address_in(std::string_view networks, std::string_view name);

}  // namespace muster::runtime
