// The norm of gradients on a GPU, and their scaling. Sums run in f64 in an order that depends on the sizes alone, so
// equal gradients have equal norms on every rank.
#pragma once

#include "muster/bucket_exchange.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::runtime {

class DeviceNorm {
  public:
    /// A collective: allocates memory.
    Result<void> prepare(const ExchangeTerms& terms);

    /// Between begin() and total(): adds the squares of `part`, of a floating type.
    Result<void> begin();
    Result<void> add(const Buffer& part);
    /// Waits for the total and returns it.
    Result<double> total();

    Result<void> scale(const Buffer& part, double factor);
    /// Waits until the scaling is complete.
    Result<void> finish();

  private:
    DeviceQueue* queue_ = nullptr;
    Duration timeout_{};
    Memory memory_;  ///< the sums, then the total
};

}  // namespace muster::runtime
