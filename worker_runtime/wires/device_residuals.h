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
    /// Copies the residuals to the host, in the new layout, and requests new GPU memory from `plan`.
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets, StagingPlan& plan);
    /// Fills the new memory. Call this after StagingPlan::take().
    Result<void> take_place();

    /// The residuals of a bucket of f32; empty for other types.
    [[nodiscard]] Buffer of(const GradientBucket& bucket) const { return places_[bucket.index]; }

    /// Implement BucketExchange::keep() and restore().
    Result<void> keep(std::vector<std::byte>& to) const;
    Result<bool> restore(std::span<const std::byte>& from);

  private:
    DeviceQueue* queue_ = nullptr;
    Duration timeout_{};
    Residuals on_host_;  ///< has values only between prepare() and take_place()
    std::vector<Buffer> places_;
};

/// Appends GPU memory of f32 to `to`, as add_bytes() does.
Result<void> keep_device(DeviceQueue& queue, Duration timeout, const Buffer& memory, std::vector<std::byte>& to);
/// Fills GPU memory from `from`, as take_bytes() does. Returns false if `from` is too short.
Result<bool> restore_device(DeviceQueue& queue, Duration timeout, const Buffer& memory,
                            std::span<const std::byte>& from);

}  // namespace muster::runtime
