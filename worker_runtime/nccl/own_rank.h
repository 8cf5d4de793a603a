// This rank and its group.
#pragma once

#include <memory>
#include <vector>

#include "worker_runtime/nccl/core/nccl_ranks.h"
#include "worker_runtime/nccl/nccl_process.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

/// A collective: what all ranks say about themselves. A rank whose CUDA or NCCL is unusable (`process` is an error)
/// says so, and all ranks get that error, which names it, instead of waiting for it.
Result<std::vector<NcclRank>> meet_ranks(const GroupTerms& group, const Result<std::shared_ptr<NcclProcess>>& process);

}  // namespace muster::runtime
