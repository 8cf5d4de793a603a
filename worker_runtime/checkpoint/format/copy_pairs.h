// Decides which rank on the next node keeps copies of a rank's snapshots, so that no node's loss loses state. Pure.
#pragma once

#include <vector>

namespace muster::runtime {

/// Returns, for each rank, the rank on the next node that gets its copies: the i-th rank of a node sends to the i-th
/// rank of the next node, modulo that node's ranks. All are -1 if there is only one node. `nodes`: by rank; any
/// numbers.
std::vector<int> copy_targets(const std::vector<int>& nodes);

/// Returns the ranks connected to `rank` by copies, in order, with `rank` itself: they must be in one group.
std::vector<int> copy_ring(const std::vector<int>& targets, int rank);

}  // namespace muster::runtime
