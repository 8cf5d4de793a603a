// How fast links usually are, by the machine type of their nodes: machines of two generations in one job are no fault
// of the slower ones. Pure.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "worker_runtime/pairs/group_search.h"
#include "worker_runtime/pairs/pairing.h"

namespace muster::runtime {

class UsualSpeeds {
  public:
    /// `types` has a number for each node. Nodes with the same number are machines of one type. Those of a type with
    /// fewer than three are compared with all nodes. `slow_percent` is SearchLimits::link_slow_percent.
    UsualSpeeds(std::vector<int> types, int slow_percent);

    /// A pair that passed in this round. Those between nodes of one type tell what is usual there.
    void told(NodePair pair, int mbytes_per_s);
    /// The first round with pairs of a type decides: their median, or of fewer than three the best.
    void end_round();

    /// What a test of these nodes should reach: what is usual for the slowest of their types. 0: unknown, as where no
    /// pair of a type has passed.
    [[nodiscard]] int of(const NodeGroup& nodes) const;
    /// Whether a test of these nodes reached too little of that; a group of more than two may reach half of a pair.
    [[nodiscard]] bool is_slow(const NodeGroup& nodes, int mbytes_per_s) const;

  private:
    [[nodiscard]] int type(int node) const { return types_[static_cast<std::size_t>(node)]; }

    std::vector<int> types_;
    int slow_percent_;
    std::map<int, int> usual_;                // by type
    std::map<int, std::vector<int>> told_{};  // in this round
};

}  // namespace muster::runtime
