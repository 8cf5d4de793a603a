// Exchanges the description of each rank of a group.
#pragma once

#include <memory>
#include <vector>

#include "worker_runtime/nccl/core/nccl_ranks.h"
#include "worker_runtime/nccl/nccl_process.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

/// A collective: returns the descriptions of all ranks. If CUDA or NCCL is unusable on a rank (`process` is an error),
/// all ranks return that error, which names the rank, instead of waiting for it.
Result<std::vector<NcclRank>> meet_ranks(const GroupTerms& group, const Result<std::shared_ptr<NcclProcess>>& process);

}  // namespace muster::runtime
