// Which samples each step takes, for runs whose world changes and that go on where they stopped: nothing is skipped and
// nothing is repeated, whatever happens to the ranks.
//
//     auto sampler = muster::ElasticSampler::make({.sample_count = digits.size(), .batch_size = 96});
//     for (;;) {
//         const auto step = sampler->next();
//         const auto mine = sampler->indices(step, {.rank = world.rank(), .world = world.size()});
//         reducer.begin_step(mine->size());               // the average counts every rank by its samples
//         ... forward, backward, finish, optimizer ...
//         sampler->commit(step);                          // now these samples count as seen
//         ... a checkpoint takes sampler->state() along ...
//     }
//
// There is one order of all samples for each epoch, a function of (seed, epoch) alone, and a cursor: how many of them
// were committed. A step takes the next `batch_size` of the order, and the ranks divide them among themselves. So
// neither the samples of a step nor their order depend on the world, and ranks may come and go between any two steps. A
// step that failed was not committed: next() gives it again, to the same or another world.
//
// The state is (seed, epoch, cursor, batch size) and a few words that tell whether it belongs to this data: a JSON
// object for the checkpoint that also holds the weights, so that both are of the same step.
//
// Shares of a step differ by at most one sample, and where a step has fewer samples than ranks some are empty. All
// ranks take the step all the same; give indices().size() to GradientReducer::begin_step(), which divides the sum by
// all samples. The batch may change at any step, by set_batch_size() on all ranks.
//
// Random numbers for a sample (crops, noise) should come from sample_seed(): of the sample and the epoch, not of the
// rank or of a loader's worker.
//
// Threads: one at a time. Memory: SampleOrder::torch 4 bytes a sample of the data, the others none.
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
    computed,  ///< a keyed permutation whose places are computed one by one (data/index_permutation.h): no memory, and
               ///< up to 2^63 samples
    sequential,  ///< 0, 1, 2, ... in every epoch
};

/// Which samples of a step go to which rank.
enum class Deal {
    strided,     ///< every world-th, beginning with its rank: what torch's DistributedSampler and a loader give
    contiguous,  ///< a run of neighbours, for data that is read in order
};

/// What happens to the end of an epoch that the batch does not divide.
enum class Tail {
    short_batch,  ///< the last step has fewer samples: each sample once
    pad,          ///< the last step is filled up from the front of the epoch's order: those samples come twice
    drop,         ///< an epoch ends where less than a batch is left: those samples are left out
};

struct ElasticSamplerOptions {
    static constexpr std::uint64_t batch_size_max = std::uint64_t{1} << 32;
    static constexpr std::uint64_t sample_count_max = std::uint64_t{1} << 63;

    std::uint64_t sample_count = 0;
    std::uint64_t batch_size = 0;  ///< samples of a step, over all ranks
    std::uint64_t seed = 0;
    SampleOrder order = SampleOrder::torch;
    Deal deal = Deal::strided;
    Tail tail = Tail::short_batch;
};

/// Places first .. first + count - 1 of the epoch's order. Places beyond its end (Tail::pad) begin again at its front.
struct SampleStep {
    std::uint64_t epoch = 0;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    bool ends_epoch = false;

    friend bool operator==(const SampleStep&, const SampleStep&) = default;
};

/// Who takes a share of a step: any rank of any world.
struct Taker {
    int rank = 0;
    int world = 1;
};

class ElasticSampler {
  public:
    /// Begins with epoch 0. Errors name the option: no samples, or too many for the order; a batch of 0 or beyond the
    /// limit; with Tail::drop, a batch that is larger than the data.
    static Result<ElasticSampler> make(const ElasticSamplerOptions& options);

    ElasticSampler(ElasticSampler&&) noexcept;
    ElasticSampler& operator=(ElasticSampler&&) noexcept;
    ~ElasticSampler();

    /// The step at the cursor. The same one until it is committed.
    [[nodiscard]] SampleStep next() const;
    /// The step behind `step`, for whoever loads ahead. invalid_argument: this sampler cannot have given `step`.
    [[nodiscard]] Result<SampleStep> after(const SampleStep& step) const;

    /// The taker's samples of `step`: each below sample_count. invalid_argument: a rank that is not in its world, or
    /// such a step. The first call of an epoch in torch's order makes that order: 20 ns a sample of the data or so.
    [[nodiscard]] Result<std::vector<std::uint64_t>> indices(const SampleStep& step, Taker taker) const;

    /// All samples of `step` are seen, by all ranks: moves the cursor behind it. refused: it is not the step at the
    /// cursor, such as one that was committed before. On all ranks alike.
    Result<void> commit(const SampleStep& step);

    /// For the steps to come, from the cursor on. Errors as those of make().
    Result<void> set_batch_size(std::uint64_t batch_size);

    [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
    /// Samples of the epoch that were committed.
    [[nodiscard]] std::uint64_t cursor() const { return cursor_; }
    [[nodiscard]] const ElasticSamplerOptions& options() const { return options_; }

    /// Steps of a whole epoch, and from the cursor to the end of its epoch, with the batch size of now.
    [[nodiscard]] std::uint64_t steps_per_epoch() const;
    [[nodiscard]] std::uint64_t steps_left() const;

    /// One line of JSON: {"version":1,"samples":...,"seed":...,"order":"torch","epoch":...,"cursor":...,
    /// "batch_size":...}. Equal on all ranks.
    [[nodiscard]] std::string state() const;

    /// Goes on from there, with that batch size. bad_frame: damaged, or of a later version; the error names the field.
    /// refused: of other data, another seed or another order; it names both values. The sampler stays as it was then.
    Result<void> load_state(std::string_view state);

    /// For the random numbers that sample `index` needs in `epoch`.
    [[nodiscard]] std::uint64_t sample_seed(std::uint64_t epoch, std::uint64_t index) const;

  private:
    explicit ElasticSampler(const ElasticSamplerOptions& options);

    [[nodiscard]] SampleStep step_from(std::uint64_t epoch, std::uint64_t first) const;
    [[nodiscard]] std::uint64_t steps_from(std::uint64_t first) const;
    [[nodiscard]] Result<void> check(const SampleStep& step) const;

    ElasticSamplerOptions options_;
    std::uint64_t epoch_ = 0;
    std::uint64_t cursor_ = 0;                            ///< always below sample_count
    mutable std::unique_ptr<runtime::EpochOrder> order_;  ///< of the epoch asked for last
};

}  // namespace muster
