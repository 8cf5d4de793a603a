// The assignment of a group's ranks to nodes.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/shared_memory/local_meeting.h"

namespace muster::runtime {

/// Nodes with consecutive ranks, numbered from 0.
struct NodeLayout {
    std::vector<int> begins;  ///< The first rank of each node; the last entry is the number of ranks.

    [[nodiscard]] int node_count() const { return static_cast<int>(begins.size()) - 1; }
    [[nodiscard]] int node_of(int rank) const;
    [[nodiscard]] int first_of(int node) const { return begins[static_cast<std::size_t>(node)]; }
    [[nodiscard]] int size_of(int node) const { return first_of(node + 1) - first_of(node); }
    /// The number of ranks of the smallest node.
    [[nodiscard]] int smallest() const;
    /// The ranks that `rank` needs beside those of every large group (mesh/tcp_partners.h): its neighbours in the chain
    /// of nodes, and if it is the first of its node, first ranks of nodes at the distance of a power of two.
    [[nodiscard]] std::vector<int> partners_of(int rank) const;
};

/// How ranks are assigned to nodes.
enum class NodesBy {
    memory,  ///< Ranks that can share memory form a node.
    number,  ///< Ranks with the same launcher number form a node, even if others could share memory with them.
};

/// unsupported, with the reason, if no nodes can be formed that share memory: there is only one node, or one rank on
/// each, or a node's ranks cannot share memory or are not consecutive.
Result<NodeLayout> lay_out_nodes(const std::vector<LocalIdentity>& identities, NodesBy by);

}  // namespace muster::runtime
