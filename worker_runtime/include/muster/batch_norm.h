// Batch normalisation over the batches of all ranks: the two exchanges between ranks.
//
// Use a separate communicator (world.split(0, world.rank())): these calls run in the middle of the forward and backward
// passes, while the gradient reducer uses the other one.
#pragma once

#include <cstdint>
#include <span>

#include "muster/communicator.h"

namespace muster {

/// One value per channel.
struct BatchStatistics {
    std::span<float> mean;
    std::span<float> variance;  ///< the variance of the batch itself: divided by its size n, not by n - 1
    std::uint64_t count = 0;    ///< values per channel; may differ between ranks, and may be 0
};

/// A collective, in the forward pass: replaces this rank's statistics by those of all ranks' values. They are combined
/// pairwise in f64 and in rank order (Chan, Golub, LeVeque 1979), so that large means do not cancel small variances.
Result<void> synchronise_batch_statistics(Communicator& communicator, BatchStatistics& statistics);

/// A collective, in the backward pass: replaces both arrays by their sums over all ranks. Per channel, `sum_gradient`
/// is the sum of the output's gradient, `sum_product` that of the output's gradient times (input - mean).
Result<void> synchronise_batch_gradients(Communicator& communicator, std::span<float> sum_gradient,
                                         std::span<float> sum_product);

}  // namespace muster
