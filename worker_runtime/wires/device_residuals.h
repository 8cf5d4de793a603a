// Residuals (residuals.h) in GPU memory. New buckets are rare, so the residuals are copied to the host to move with the
// parameters.
#pragma once

#include <span>
#include <vector>

#include "muster/bucket_exchange.h"
#include "worker_runtime/transport/device_queue.h"
#include "worker_runtime/wires/residuals.h"
#include "worker_runtime/wires/staging.h"

namespace muster::runtime {

class DeviceResiduals {
  public:
    /// Takes what is known from the old memory, and puts the wish for new memory into `plan`.
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets, StagingPlan& plan);
    /// When the plan's memory is there: fills it.
    Result<void> take_place();

    /// Of a bucket of f32; nothing for others.
    [[nodiscard]] Buffer of(const GradientBucket& bucket) const { return places_[bucket.index]; }

    /// For BucketExchange::keep() and restore().
    Result<void> keep(std::vector<std::byte>& to) const;
    Result<bool> restore(std::span<const std::byte>& from);

  private:
    DeviceQueue* queue_ = nullptr;
    Duration timeout_{};
    Residuals on_host_;  ///< its values are there only while buckets are made anew
    std::vector<Buffer> places_;
};

/// Adds device memory of f32 to `to`, as add_bytes() does.
Result<void> keep_device(DeviceQueue& queue, Duration timeout, const Buffer& memory, std::vector<std::byte>& to);
/// As take_bytes() does. False: there are too few.
Result<bool> restore_device(DeviceQueue& queue, Duration timeout, const Buffer& memory,
                            std::span<const std::byte>& from);

}  // namespace muster::runtime
