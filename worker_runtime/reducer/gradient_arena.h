// The memory of all buckets and its layout.
#pragma once

#include <span>
#include <vector>

#include "muster/bucket_exchange.h"
#include "muster/communicator.h"
#include "worker_runtime/core/bucket_plan.h"

namespace muster::runtime {

class GradientArena {
  public:
    /// Lays out the gradients as `plan` defines and zeroes them. A collective: it allocates memory if the present one
    /// is too small, the first time and rarely later. It frees the old memory first, so that there are never two copies
    /// of the gradients.
    Result<void> hold(Communicator& communicator, const BucketPlan& plan);

    [[nodiscard]] Buffer gradient(std::int32_t parameter) const {
        return gradients_[static_cast<std::size_t>(parameter)];
    }

    /// In launch order. The reducer sets their `samples` and `step`.
    [[nodiscard]] std::span<GradientBucket> buckets() { return buckets_; }
    [[nodiscard]] std::span<const GradientBucket> buckets() const { return buckets_; }

    /// Zeroes the gradients before it returns.
    Result<void> clear();

  private:
    Memory memory_;
    DeviceQueue* device_ = nullptr;  ///< the communicator's queue if the memory is on a GPU
    Duration timeout_{};
    std::size_t used_bytes_ = 0;
    std::vector<Buffer> gradients_;
    std::vector<std::vector<BucketSlice>> slices_;
    std::vector<GradientBucket> buckets_;
};

}  // namespace muster::runtime
