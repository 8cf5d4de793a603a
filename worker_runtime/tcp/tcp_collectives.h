// Collectives over TCP.
#pragma once

#include "rendezvous/base/error.h"
#include "worker_runtime/core/parts_table.h"
#include "worker_runtime/tcp/tcp_lanes.h"
#include "worker_runtime/tcp/tcp_transport.h"

namespace muster::runtime {

/// Runs a collective (not send or receive) to its end. Nearly all are direct: what a rank has for another goes straight
/// to it, which costs as few bytes as any algorithm, and one delay.
///
///   all_reduce   small: everybody sends all to all, and sums. Large: the ranks own slices. Each rank's part of slice j
///                goes to rank j, which sums in rank order as pieces come, and returns the sums on the other lane. In a
///                large world from rank to rank (tcp/tcp_chain).
///   broadcast    small: root to all. Large: the root sends each rank a slice, which it passes on to the others.
///   reduce       as all_reduce, except that the sums go to the root alone.
///   others       each piece to whom it is for; before an all_to_all_uneven, its counts to all.
///
/// A large group, which is no whole mesh, has algorithms of its own (tcp/tcp_steps).
Result<void> run_collective(TcpLanes& lanes, const Operation& operation, TcpAlgorithm algorithm, const RunTerms& terms);

/// The two halves of an all_to_all_uneven in a whole mesh: all ranks' counts, compared, and then the parts.
Result<PartsTable> learn_parts(TcpLanes& lanes, const Operation& operation, const RunTerms& terms);
Result<void> move_parts(TcpLanes& lanes, const Operation& operation, const RunTerms& terms);

/// contradiction_error() if two ranks contradict each other.
Result<void> check_table(TcpLanes& lanes, const PartsTable& table);

/// A barrier with `header`: the first rank whose header says that it lacks memory; -1 for none.
Result<int> first_that_lacks(TcpLanes& lanes, const CollectiveHeader& header, const RunTerms& terms);

}  // namespace muster::runtime
