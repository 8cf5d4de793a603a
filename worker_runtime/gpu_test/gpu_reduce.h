// The all_reduce between the GPUs of one node: a worker of the job that `muster doctor --level 3` starts there.
#pragma once

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// Joins the other workers by the NCCL plugin, with the GPU of this worker's local rank, adds 64 MiB of f32 again and
/// again, and compares every sum. Rank 0 prints the record "reduced" with the wrong sums of all ranks and the bandwidth
/// as nccl-tests counts it (busbw).
Result<void> reduce_between_gpus();

}  // namespace muster::runtime
