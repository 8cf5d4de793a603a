// Batch normalisation over the batches of all ranks: the two things that ranks must tell each other.
//
// Give it a communicator of its own (world.split(0, world.rank())): these calls come in the middle of forward and
// backward passes, where the gradient reducer uses the other one.
#pragma once

#include <cstdint>
#include <span>

#include "muster/communicator.h"

namespace muster {

/// One value for each channel.
struct BatchStatistics {
    std::span<float> mean;
    std::span<float> variance;  ///< of the batch itself: divided by its size, not by one less
    std::uint64_t count = 0;    ///< values of each channel; may differ between ranks, and may be 0
};

/// A collective, in the forward pass: this rank's statistics become those of all ranks' values together. Combined in
/// f64 and in rank order, pairwise (Chan, Golub, LeVeque 1979), so that large means do not swallow small variances.
Result<void> synchronise_batch_statistics(Communicator& communicator, BatchStatistics& statistics);

/// A collective, in the backward pass: the sums over all ranks. `sum_gradient` is of the output's gradient for each
/// channel, `sum_product` of the output's gradient times (input - mean).
Result<void> synchronise_batch_gradients(Communicator& communicator, std::span<float> sum_gradient,
                                         std::span<float> sum_product);

}  // namespace muster
