// Sums between nodes with several ranks each: from node to node, each of which adds what lies in the memory that its
// ranks share. Elements that lie elsewhere, or are 16 bits wide, go through staging memory, in parts.
#pragma once

#include <vector>

#include "muster/communicator.h"
#include "worker_runtime/hierarchical/node_groups.h"
#include "worker_runtime/tcp/tcp_chain.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

class NodeReduction {
  public:
    /// `groups` outlives this.
    explicit NodeReduction(const NodeGroups& groups) : groups_(groups) {}

    /// Does `operation`, an all_reduce or a reduce_scatter, move fewer bytes so than flat? The same on all ranks,
    /// whatever memory each of them uses.
    [[nodiscard]] bool pays(const Operation& operation) const;
    Result<void> all_reduce(const Operation& operation, const RunTerms& terms);
    /// An all_reduce of which each rank takes its piece; the caller's input stays as it is.
    Result<void> reduce_scatter(const Operation& operation, const RunTerms& terms);

  private:
    // `part` of the caller's `whole` operation, which is what ranks compare.
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
