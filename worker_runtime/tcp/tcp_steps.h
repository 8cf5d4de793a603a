// The collectives of a large group, whose ranks are connected with partners only (tcp_circle.h). Results have the same
// bits as those of small groups: every sum is made in rank order, from the elements themselves or in a chain.
//
//   barrier         log2(n) steps.
//   all_gather      log2(n) steps, no byte more than direct.
//   gather          as all_gather, in parts of 4 MiB of which only the root keeps its own copy.
//   scatter         as a broadcast of all pieces, in such parts.
//   all_to_all_uneven  the counts as an all_gather; then as all_to_all, each part as if it were the largest.
//   reduce          as all_reduce.
//   broadcast       a tree of log2(n) levels. Large: from each rank to the next, every byte once.
//   all_to_all      log2(n) steps; every byte travels log2(n) / 2 times on average.
//   reduce_scatter  as all_to_all, then each rank sums what it has got.
//   all_reduce      small: everybody gathers all and sums it. Medium: as reduce_scatter, then all_gather; log2(n) / 2
//                   bytes sent for each byte of data, and one more. The slices are whole cache lines (tcp_slices.h): of
//                   little data, the first count as at least 64 bytes for each rank. Large: from rank to rank and back
//                   (tcp_chain.h), 2 bytes.
#pragma once

#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/tcp/tcp_lanes.h"
#include "worker_runtime/tcp/tcp_transport.h"

namespace muster::runtime {

/// Runs a collective (not send or receive) to its end.
Result<void> run_in_steps(TcpLanes& lanes, const Operation& operation, TcpAlgorithm algorithm, const RunTerms& terms);

}  // namespace muster::runtime
