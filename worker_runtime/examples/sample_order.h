// Which samples a step takes: a function of the step's number alone, so that a run that goes on from a checkpoint takes
// the same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::runtime {

/// splitmix64 (Steele, Lea, Flood 2014): the same numbers with every standard library.
std::uint64_t next_random(std::uint64_t& state);

/// The order in which epoch `epoch` visits the samples (Fisher and Yates).
std::vector<std::size_t> sample_order(std::uint64_t epoch, std::size_t count);

/// Batches of `batch_size` in one pass over `count` samples; the last one may be smaller.
std::uint64_t steps_per_epoch(std::uint64_t batch_size, std::size_t count);

struct Share {
    int rank = 0;
    int world = 1;
};

/// A rank's part of the batch of `step`, out of `count` samples: every world-th. May be empty.
std::vector<std::size_t> share_of_step(std::uint64_t step, std::uint64_t batch_size, std::size_t count, Share share);

}  // namespace muster::runtime
