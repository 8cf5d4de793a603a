// The sample indices of this rank in a pass over the data. Indices and order are those of PyTorch's
// torch.utils.data.DistributedSampler for the same size, world, rank, seed, epoch and flags.
//
//     auto sampler = muster::DistributedSampler::make({.sample_count = 50'000, .world = 8, .rank = 3});
//     for (std::uint64_t epoch = 0; epoch < 90; ++epoch) {
//         sampler->set_epoch(epoch);                       // without it every pass has the same order
//         for (const auto index : sampler->indices()) ...
//     }
//
// The order is bit for bit that of torch.randperm on the CPU: Mersenne Twister seeded with the low 32 bits of seed +
// epoch, and a Fisher-Yates shuffle (data/torch_permutation.h). Rank r takes positions r, r + world, r + 2 world, ...
// If the number of samples is not a multiple of the world, the order is padded from its own beginning, so that some
// samples occur twice; with drop_last, its tail is dropped instead. Every rank has the same number of samples.
//
// If the world may change, or a run may continue in the middle of a pass, use elastic_sampler.h.
//
// Threads: one at a time. Memory: 4 bytes per sample of the data while indices() runs, if it shuffles.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster {

/// Torch's order is an array of 32-bit indices; make() refuses more samples if it shuffles.
inline constexpr std::uint64_t torch_order_samples_max = 0xffffffff;

enum class Shuffle { on, off };

enum class LastSamples {
    repeat,  ///< pad from the beginning of the order (torch: drop_last=False)
    drop,    ///< drop the last samples (torch: drop_last=True)
};

struct DistributedSamplerOptions {
    std::uint64_t sample_count = 0;
    int world = 1;
    int rank = 0;
    std::uint64_t seed = 0;  ///< equal on all ranks; pass a negative seed of torch modulo 2^64
    Shuffle shuffle = Shuffle::on;
    LastSamples last = LastSamples::repeat;
};

class DistributedSampler {
  public:
    /// invalid_argument: a world below 1, or a rank that is not in it. limit_exceeded: too many samples to shuffle.
    static Result<DistributedSampler> make(const DistributedSamplerOptions& options);

    /// Sets the number of the pass for the next indices().
    void set_epoch(std::uint64_t epoch);

    /// The number of indices of one pass on this rank; equal on every rank.
    [[nodiscard]] std::uint64_t size() const { return size_; }

    /// Begins a pass and returns its size() indices, each below sample_count. A second pass without set_epoch() repeats
    /// the order of the first. That is usually a mistake, so the log warns of it once.
    std::vector<std::uint64_t> indices();

    /// True after such a repeated pass has begun.
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
