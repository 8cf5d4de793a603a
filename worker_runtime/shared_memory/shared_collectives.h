// Collectives over shared memory, each as the steps of a SharedGroup.
#pragma once

#include "rendezvous/base/error.h"
#include "worker_runtime/shared_memory/shared_group.h"

namespace muster::runtime {

/// Runs a collective (not send or receive) to its end. Three ways:
///
///   in place   all_reduce, reduce_scatter, all_gather and all_to_all if every rank's data is in memory of one
///   allocate(),
///              or everywhere in HostMemory: each rank reads its slice of every rank's memory and writes the result to
///              all of them; each byte is read once and written once. Two steps.
///   small      an all_reduce of up to 16 KiB (1 KiB in shared memory): every rank copies its data to its window and
///              sums all windows itself. One step.
///   windows    anything else, a window's half at a time.
///
/// Whatever the way, an element's sum runs over the ranks in rank order: same bits.
Result<void> run_collective(SharedGroup& group, const Operation& operation, const RunTerms& terms);

}  // namespace muster::runtime
