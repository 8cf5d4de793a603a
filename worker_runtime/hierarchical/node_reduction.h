// Sums over nodes with several ranks each, from node to node: each node adds the elements in its ranks' shared memory.
// Elements in other memory, or of 16 bits, are copied through staging memory in parts.
#pragma once

#include <vector>

#include "muster/communicator.h"
#include "worker_runtime/hierarchical/node_groups.h"
#include "worker_runtime/tcp/tcp_chain.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

class NodeReduction {
  public:
    /// `groups` must outlive this.
    explicit NodeReduction(const NodeGroups& groups) : groups_(groups) {}

    /// True if `operation`, an all_reduce, a reduce or a reduce_scatter, moves fewer bytes this way than flat. Equal on
    /// all ranks, whatever memory they use.
    [[nodiscard]] bool pays(const Operation& operation) const;
    Result<void> all_reduce(const Operation& operation, const RunTerms& terms);
    /// An all_reduce of which each rank keeps its piece (reduce_scatter), or the root everything (reduce). The caller's
    /// input stays unchanged.
    Result<void> keep_piece(const Operation& operation, const RunTerms& terms);

  private:
    // `part` is a part of the caller's operation `whole`, which is the one that ranks compare.
    Result<void> reduce_part(const Operation& part, const Operation& whole, const RunTerms& terms);
    Result<void> reduce_staged(Operation& part, const Operation& whole, const RunTerms& terms);
    Result<void> chain_nodes(const Operation& part, std::vector<void*> memory, const Operation& whole,
                             const RunTerms& terms);
    Result<void> meet(const Operation& operation, const RunTerms& terms);
    Result<std::vector<void*>> common_memory(const Operation& part);
    Result<void> stage(Operation& operation, const RunTerms& terms);
    [[nodiscard]] ChainPlace place_in(const Operation& operation, std::vector<void*> memory) const;

    const NodeGroups& groups_;
    Memory staging_;                      ///< Shared by the node's ranks.
    std::vector<std::byte> own_staging_;  ///< Used instead if this rank is alone on its node.
};

}  // namespace muster::runtime
