// An all_reduce that passes through the ranks in their order: an open ring.
//
// Rank 0 sends its elements to rank 1, which adds its own and sends the sums on; the last rank has the result, which
// travels back. Pieces follow each other, so both directions are busy at once. A rank communicates with two others,
// whatever the world's size. Every link carries each byte once in each direction: a rank sends 2 bytes for each byte of
// data, where a closed ring sends 2 (p-1)/p. In exchange, sums run in rank order and have the same bits as the direct
// algorithm. A closed ring cannot have them, because its sums begin at another rank for each slice.
//
// A place in the chain may represent several ranks: a node, whose ranks share memory
// (hierarchical/hierarchical_transport).
#pragma once

#include <vector>

#include "worker_runtime/tcp/tcp_lanes.h"
#include "worker_runtime/tcp/tcp_pieces.h"

namespace muster::runtime {

/// Where a rank stands in a chain, and what it adds there.
struct ChainPlace {
    int previous = -1;  ///< The rank that sends sums. -1: the chain begins here.
    int next = -1;      ///< -1: the chain ends here.
    /// The elements of the ranks that this place stands for, in rank order, of which `first_rank` is the first; and all
    /// of them get the result. `own` is the one of them that sums on the way may overwrite.
    std::vector<void*> memory;
    int first_rank = 0;
    std::size_t own = 0;
    std::size_t bytes = 0;  ///< Size of each; equal at every place. 0: this rank only takes part in the agreement.
};

/// May sums of this type be passed on without changing a bit? (f16 and bf16 would be rounded at every rank.)
bool can_chain(DataType type);

/// Each rank for itself in the chain.
ChainPlace own_place(const TcpLanes& lanes, const Operation& operation);

/// `operation` is an all_reduce, `place.memory` lies in what it reduces. `named` is what ranks compare: the same, or
/// the caller's own operation, of which this is a part.
Result<void> run_chain(TcpLanes& lanes, const Operation& operation, const ChainPlace& place, const Operation& named,
                       const RunTerms& terms);

}  // namespace muster::runtime
