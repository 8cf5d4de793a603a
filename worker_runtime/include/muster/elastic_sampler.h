// The samples of each step, for runs whose world changes and that continue after a stop: no sample is skipped or
// repeated.
//
//     auto sampler = muster::ElasticSampler::make({.sample_count = digits.size(), .batch_size = 96});
//     for (;;) {
//         const auto step = sampler->next();
//         const auto mine = sampler->indices(step, {.rank = world.rank(), .world = world.size()});
//         reducer.begin_step(mine->size());               // the average weights every rank by its samples
//         ... forward, backward, finish, optimizer ...
//         sampler->commit(step);                          // these samples count as seen now
//         ... save sampler->state() with the checkpoint ...
//     }
//
// Each epoch has one order of all samples, a function of (seed, epoch) alone, and a cursor: the number of committed
// samples. A step takes the next `batch_size` samples of the order, and the ranks divide them. So the samples of a step
// and their order do not depend on the world, and ranks may join or leave between any two steps. A failed step is not
// committed: next() returns it again, to the same or another world.
//
// The state is (seed, epoch, cursor, batch size) and a few fields that identify the data, as a JSON object. Save it in
// the checkpoint of the weights, so that both belong to the same step.
//
// Shares of a step differ by at most one sample. If a step has fewer samples than ranks, some shares are empty, but all
// ranks take the step. Pass indices().size() to GradientReducer::begin_step(), which divides the sum by all samples.
// set_batch_size(), on all ranks, may change the batch at any step.
//
// Take the random numbers for a sample (crops, noise) from sample_seed(): it depends on the sample and the epoch, not
// on the rank or the data loader's worker.
//
// Threads: one at a time. Memory: 4 bytes per sample of the data with SampleOrder::torch, none with the others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster {

namespace runtime {
class EpochOrder;
}

/// The order of the samples in an epoch.
enum class SampleOrder {
    torch,     ///< torch.randperm with seed + epoch, an array: at most torch_order_samples_max samples
    computed,  ///< a keyed permutation, computed per position (data/index_permutation.h): no memory, up to 2^63 samples
    sequential,  ///< 0, 1, 2, ... in every epoch
};

/// The division of a step's samples among the ranks.
enum class Deal {
    strided,     ///< every world-th sample, starting at the rank: as torch's DistributedSampler with a loader
    contiguous,  ///< a run of consecutive samples, for data that is read in order
};

/// The end of an epoch that is not a multiple of the batch size.
enum class Tail {
    short_batch,  ///< the last step has fewer samples: each sample occurs once
    pad,          ///< the last step is padded from the beginning of the epoch's order: those samples occur twice
    drop,         ///< the epoch ends when less than a batch is left: those samples are dropped
};

struct ElasticSamplerOptions {
    static constexpr std::uint64_t batch_size_max = std::uint64_t{1} << 32;
    static constexpr std::uint64_t sample_count_max = std::uint64_t{1} << 63;

    std::uint64_t sample_count = 0;
    std::uint64_t batch_size = 0;  ///< samples per step over all ranks
    std::uint64_t seed = 0;
    SampleOrder order = SampleOrder::torch;
    Deal deal = Deal::strided;
    Tail tail = Tail::short_batch;
};

/// Positions first .. first + count - 1 of the epoch's order. Positions beyond its end (Tail::pad) wrap to its
/// beginning.
struct SampleStep {
    std::uint64_t epoch = 0;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    bool ends_epoch = false;

    friend bool operator==(const SampleStep&, const SampleStep&) = default;
};

/// The rank that takes a share of a step, in any world.
struct Taker {
    int rank = 0;
    int world = 1;
};

class ElasticSampler {
  public:
    /// Starts at epoch 0. Errors name the option: no samples, or too many for the order; a batch size of 0 or above the
    /// limit; with Tail::drop, a batch larger than the data.
    static Result<ElasticSampler> make(const ElasticSamplerOptions& options);

    ElasticSampler(ElasticSampler&&) noexcept;
    ElasticSampler& operator=(ElasticSampler&&) noexcept;
    ~ElasticSampler();

    /// The step at the cursor. Returns the same step until it is committed.
    [[nodiscard]] SampleStep next() const;
    /// The step after `step`, for prefetching. invalid_argument: `step` cannot come from this sampler.
    [[nodiscard]] Result<SampleStep> after(const SampleStep& step) const;

    /// The sample indices of `step` for the taker, each below sample_count. invalid_argument: the rank is outside its
    /// world, or `step` cannot come from this sampler. The first call of an epoch in torch's order computes that order,
    /// at about 20 ns per sample of the data.
    [[nodiscard]] Result<std::vector<std::uint64_t>> indices(const SampleStep& step, Taker taker) const;

    /// All ranks have seen all samples of `step`: moves the cursor behind it. Call it on all ranks. refused: `step` is
    /// not the step at the cursor, for example because it was committed before.
    Result<void> commit(const SampleStep& step);

    /// Sets the batch size from the cursor on. Errors are those of make().
    Result<void> set_batch_size(std::uint64_t batch_size);

    [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
    /// The number of committed samples of the epoch.
    [[nodiscard]] std::uint64_t cursor() const { return cursor_; }
    [[nodiscard]] const ElasticSamplerOptions& options() const { return options_; }

    /// Steps of a whole epoch, and from the cursor to the end of its epoch, with the current batch size.
    [[nodiscard]] std::uint64_t steps_per_epoch() const;
    [[nodiscard]] std::uint64_t steps_left() const;

    /// One line of JSON: {"version":1,"samples":...,"seed":...,"order":"torch","epoch":...,"cursor":...,
    /// "batch_size":...}. Equal on all ranks.
    [[nodiscard]] std::string state() const;

    /// Continues from a state, with its batch size. bad_frame: damaged, or of a later version; the error names the
    /// field. refused: the state belongs to other data, another seed or another order; the error names both values.
    /// After an error the sampler is unchanged.
    Result<void> load_state(std::string_view state);

    /// The seed of the random numbers for sample `index` in `epoch`.
    [[nodiscard]] std::uint64_t sample_seed(std::uint64_t epoch, std::uint64_t index) const;

  private:
    explicit ElasticSampler(const ElasticSamplerOptions& options);

    [[nodiscard]] SampleStep step_from(std::uint64_t epoch, std::uint64_t first) const;
    [[nodiscard]] std::uint64_t steps_from(std::uint64_t first) const;
    [[nodiscard]] Result<void> check(const SampleStep& step) const;

    ElasticSamplerOptions options_;
    std::uint64_t epoch_ = 0;
    std::uint64_t cursor_ = 0;                            ///< always below sample_count
    mutable std::unique_ptr<runtime::EpochOrder> order_;  ///< the order of the epoch of the last indices() call
};

}  // namespace muster
