// FiniteCheck for gradients on a GPU: one pass over each bucket, between its gradients and its collective. The result
// is copied to the host at the end of the step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/bucket_exchange.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::runtime {

class DeviceFiniteCheck {
  public:
    /// Sets new buckets. A collective the first time, when it allocates memory.
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets);

    Result<void> begin_step();
    Result<void> look_at(const GradientBucket& bucket);
    /// The parameters with a NaN or infinity, when the queue is idle.
    Result<std::vector<std::int32_t>> found();

  private:
    struct Tables {
        std::vector<std::uint64_t> begins;     ///< first elements of all slices, bucket by bucket
        std::vector<std::int32_t> parameters;  ///< parameters of these slices
        std::vector<std::size_t> first_slice;  ///< index of each bucket's first slice
    };

    DeviceQueue* queue_ = nullptr;
    Duration timeout_{};
    Memory memory_;
    Tables tables_;  ///< a copy of the tables on the GPU
    std::uint64_t* begins_ = nullptr;
    std::int32_t* parameters_ = nullptr;
    std::uint32_t* found_ = nullptr;
    std::uint32_t parameter_count_ = 0;
};

}  // namespace muster::runtime
