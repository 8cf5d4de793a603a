// Which ranks of a group sit on which node.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/shared_memory/local_meeting.h"

namespace muster::runtime {

/// Nodes whose ranks follow each other, numbered from 0.
struct NodeLayout {
    std::vector<int> begins;  ///< The first rank of each node; the last entry is the number of ranks.

    [[nodiscard]] int node_count() const { return static_cast<int>(begins.size()) - 1; }
    [[nodiscard]] int node_of(int rank) const;
    [[nodiscard]] int first_of(int node) const { return begins[static_cast<std::size_t>(node)]; }
    [[nodiscard]] int size_of(int node) const { return first_of(node + 1) - first_of(node); }
    /// Ranks of the smallest node.
    [[nodiscard]] int smallest() const;
};

/// How ranks are told apart.
enum class NodesBy {
    memory,  ///< Ranks that can share memory form a node.
    number,  ///< Ranks with the same launcher number form a node, even if others could share memory with them.
};

/// unsupported says why the ranks make no nodes that share memory: there is one node, or one rank on each, or a node's
/// ranks cannot meet or are not consecutive.
Result<NodeLayout> lay_out_nodes(const std::vector<LocalIdentity>& identities, NodesBy by);

}  // namespace muster::runtime
