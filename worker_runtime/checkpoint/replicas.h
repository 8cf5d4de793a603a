// Compares the replicated tensors of all ranks before a save.
#pragma once

#include <vector>

#include "muster/checkpoint.h"
#include "muster/communicator.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

/// A collective. invalid_argument, on all ranks alike: the ranks have different replicated tensors; the text names the
/// first one by name, and the ranks that differ from rank 0. The tensors are compared by CRC-32C, so one difference in
/// four billion is missed.
Result<void> compare_replicas(Communicator& world, const std::vector<StateTensor>& tensors, Duration timeout);

}  // namespace muster::runtime
