// Compares the replicated tensors of all ranks.
#pragma once

#include <string_view>
#include <vector>

#include "muster/checkpoint.h"
#include "muster/communicator.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

/// A collective. invalid_argument, on all ranks alike, if the replicated tensors differ between ranks: the text names
/// the first tensor that differs and the ranks that differ from rank 0, and ends with `advice`. Tensors are compared by
/// CRC-32C, so one difference in four billion is missed.
Result<void> compare_replicas(Communicator& world, const std::vector<StateTensor>& tensors, std::string_view advice,
                              Duration timeout);

}  // namespace muster::runtime
