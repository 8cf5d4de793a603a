// The memory of all buckets, and who lies where in it.
#pragma once

#include <span>
#include <vector>

#include "muster/bucket_exchange.h"
#include "muster/communicator.h"
#include "worker_runtime/core/bucket_plan.h"

namespace muster::runtime {

class GradientArena {
  public:
    /// Lays the gradients out as `plan` says; all are zero then. A collective: takes memory where the present one is
    /// too small, which is the first time and hardly ever later. The old memory goes before the new one comes, so that
    /// there are never two copies of the gradients.
    Result<void> hold(Communicator& communicator, const BucketPlan& plan);

    [[nodiscard]] Buffer gradient(std::int32_t parameter) const {
        return gradients_[static_cast<std::size_t>(parameter)];
    }

    /// In launch order. The reducer sets their `samples` and `step`.
    [[nodiscard]] std::span<GradientBucket> buckets() { return buckets_; }
    [[nodiscard]] std::span<const GradientBucket> buckets() const { return buckets_; }

    /// Zero, when it returns.
    Result<void> clear();

  private:
    Memory memory_;
    DeviceQueue* device_ = nullptr;  ///< the communicator's, where the memory is a GPU's
    Duration timeout_{};
    std::size_t used_bytes_ = 0;
    std::vector<Buffer> gradients_;
    std::vector<std::vector<BucketSlice>> slices_;
    std::vector<GradientBucket> buckets_;
};

}  // namespace muster::runtime
