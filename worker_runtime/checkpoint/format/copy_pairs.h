// Which rank keeps a copy of whose snapshots: one on the next node, so that a node's loss takes no state along. Pure.
#pragma once

#include <vector>

namespace muster::runtime {

/// For each rank, the rank on the next node that gets its copies: the i-th rank of a node goes to the i-th of the next,
/// and from the start again where that has fewer. -1 for all where there is but one node. `nodes`: by rank, any
/// numbers.
std::vector<int> copy_targets(const std::vector<int>& nodes);

/// The ranks that are tied to `rank` by copies, itself included, in order: who has to be in a group with it.
std::vector<int> copy_ring(const std::vector<int>& targets, int rank);

}  // namespace muster::runtime
