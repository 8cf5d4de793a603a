// FiniteCheck for gradients on a GPU: one look at each bucket, behind the gradients and in front of what is sent. What
// was found comes to the host when the step ends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "muster/bucket_exchange.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::runtime {

class DeviceFiniteCheck {
  public:
    /// New buckets. A collective the first time, when it takes memory.
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets);

    Result<void> begin_step();
    Result<void> look_at(const GradientBucket& bucket);
    /// The parameters in which there was something else than numbers, when the queue has nothing to do.
    Result<std::vector<std::int32_t>> found();

  private:
    struct Tables {
        std::vector<std::uint64_t> begins;     ///< of all slices, bucket by bucket
        std::vector<std::int32_t> parameters;  ///< theirs
        std::vector<std::size_t> first_slice;  ///< of each bucket
    };

    DeviceQueue* queue_ = nullptr;
    Duration timeout_{};
    Memory memory_;
    Tables tables_;  ///< as they also lie on the GPU
    std::uint64_t* begins_ = nullptr;
    std::int32_t* parameters_ = nullptr;
    std::uint32_t* found_ = nullptr;
    std::uint32_t parameter_count_ = 0;
};

}  // namespace muster::runtime
