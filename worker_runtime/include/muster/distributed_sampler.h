// Which samples this rank visits in a pass over the data: the same indices, in the same order, as PyTorch's
// torch.utils.data.DistributedSampler gives for the same size, world, rank, seed, epoch and flags.
//
//     auto sampler = muster::DistributedSampler::make({.sample_count = 50'000, .world = 8, .rank = 3});
//     for (std::uint64_t epoch = 0; epoch < 90; ++epoch) {
//         sampler->set_epoch(epoch);                       // or every pass has the same order
//         for (const auto index : sampler->indices()) ...
//     }
//
// The order is torch.randperm's on the CPU, to the last bit: Mersenne Twister seeded with the low 32 bits of seed +
// epoch, and Fisher and Yates (data/torch_permutation.h). Rank r takes places r, r + world, r + 2 world, ... of it.
// Where the world does not divide the samples, the order is filled up from its own front, so that some samples come
// twice; or, with drop_last, its tail is left out. Every rank has the same number of samples.
//
// For a run whose world may change, and for one that goes on in the middle of a pass, see elastic_sampler.h.
//
// Threads: one at a time. Memory: 4 bytes for each sample of the data while indices() runs, where it shuffles.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster {

/// Torch's order is an array of 32-bit indices; more samples are refused where it is asked for.
inline constexpr std::uint64_t torch_order_samples_max = 0xffffffff;

enum class Shuffle { on, off };

enum class LastSamples {
    repeat,  ///< fill up from the front of the order (torch: drop_last=False)
    drop,    ///< leave out the last ones (drop_last=True)
};

struct DistributedSamplerOptions {
    std::uint64_t sample_count = 0;
    int world = 1;
    int rank = 0;
    std::uint64_t seed = 0;  ///< equal on all ranks; a negative one of torch's is what it is modulo 2^64
    Shuffle shuffle = Shuffle::on;
    LastSamples last = LastSamples::repeat;
};

class DistributedSampler {
  public:
    /// invalid_argument: a world below 1, or a rank that is not in it. limit_exceeded: too many samples to shuffle.
    static Result<DistributedSampler> make(const DistributedSamplerOptions& options);

    /// The number of the pass that the next indices() is for.
    void set_epoch(std::uint64_t epoch);

    /// Indices of one pass on this rank; the same number on every rank.
    [[nodiscard]] std::uint64_t size() const { return size_; }

    /// Begins a pass: its size() indices, each below sample_count. A second pass without any set_epoch() before has the
    /// first one's order, which is hardly ever meant: the log says so, once.
    std::vector<std::uint64_t> indices();

    /// Has such a second pass begun?
    [[nodiscard]] bool order_repeated() const { return order_repeated_; }

  private:
    explicit DistributedSampler(const DistributedSamplerOptions& options);

    DistributedSamplerOptions options_;
    std::uint64_t size_;
    std::uint64_t epoch_ = 0;
    bool epoch_set_ = false;
    bool pass_begun_ = false;
    bool order_repeated_ = false;
};

}  // namespace muster
