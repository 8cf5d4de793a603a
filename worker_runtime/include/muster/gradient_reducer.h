// Averages gradients over the ranks of a data-parallel training run, while the backward pass is still going on.
//
//     auto reducer = muster::GradientReducer::make(world, parameters);      // compares models, broadcasts rank 0's
//     for (each batch) {
//         reducer->begin_step(batch.size());
//         ... forward; backward writes reducer->gradient(i), then calls reducer->mark_ready(i) ...
//         reducer->finish();                                                // every gradient is the average now
//         ... optimizer ...
//     }
//
// Gradients live in the reducer's buckets, in memory that all-reduce works on in place: the backward pass writes them
// where gradient(i) says, and the optimizer reads them there. A bucket (25 MiB by default) is launched as soon as it
// and the buckets before it are complete. See Li et al., "PyTorch Distributed", VLDB 2020, for the idea;
// core/bucket_plan.h and core/bucket_schedule.h say what is done differently.
//
// The average counts each rank by its samples: sum(samples x gradient) / sum(samples), summed in f32 (f64 gradients in
// f64) in rank order. It has the same bits on every run and for every layout of buckets, unless it is compressed.
//
// What all ranks must do alike: make reducers of equal models and options, and call begin_step(), finish(), join(),
// and clip_grad_norm() of sharded gradients, in the same order. The number of local steps in between may differ.
//
// Unused parameters. A parameter that was not marked takes part with zeros. Where no rank marked it, used(i) is false
// after finish(), its gradient means nothing, and the optimizer should leave it alone, as PyTorch leaves a parameter
// whose gradient is None. Parameters that nobody uses for some steps are no longer sent, until somebody does; nothing
// needs to be declared.
//
// Buckets are made anew when the order in which gradients come turns out to be another than expected (rank 0 decides,
// at the end of a step). begin_step() then returns Layout::moved: ask for gradient(i) again.
//
// Threads. mark_ready() may be called by several threads at once; everything else by one thread at a time, and not
// beside mark_ready(). The communicator must not be used for anything else between begin_step() and finish().
//
// GPUs. Over NCCL the buckets lie in the GPU's memory, and parameters may lie there too. mark_ready() takes a CUDA
// event: the bucket's all-reduce starts on the GPU when the events of all its gradients have come, and the host goes
// on. A mark without one says that the gradient is complete already. finish() returns when the GPU has the averages, so
// whatever is put on any stream afterwards sees them; nothing needs to wait for an event. Before begin_step() makes
// buckets anew (Layout::moved) it waits until the GPU has nothing to do, so work that reads gradients may still be
// under way then. Sums are NCCL's, in the order and precision that it chooses: equal on all ranks, but not to the last
// bit those of the host; compressed wires, which do not leave sums to it, have the host's bits. Those, FiniteCheck and
// the sharded optimizer compute on the GPU, which needs CUDA's runtime 12.8 or newer and a plugin that was built with a
// compiler for GPUs: where that is missing make() says so. WireFormat::power sends steps before power_start_step, and
// buckets without a matrix worth compressing, as they are: there the sums are NCCL's.
//
// Failures. Every error names the step, and the parameter or rank that caused it. After an error of communication the
// communicator is dead, and so is the reducer: each call returns that first error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/bucket_exchange.h"
#include "muster/communicator.h"
#include "muster/operation.h"
#include "muster/parameter.h"
#include "muster/step_cost.h"
#include "rendezvous/base/error.h"

namespace muster {

namespace runtime {
class ReducerBody;
}

/// What travels between ranks for gradients of f32. Others travel as they are.
enum class WireFormat {
    same,   ///< as it is
    bf16,   ///< half the bytes; each rank's gradient is rounded once, sums run in f32, the average is rounded once
    f16,    ///< the same with more digits and less range: a gradient beyond 65504 becomes infinite
    int8,   ///< about a quarter of the bytes; what rounding lost is added to the next step's gradient (error feedback)
    power,  ///< PowerSGD (Vogels et al., NeurIPS 2019): matrices as products of two thin ones, with error feedback
};

enum class BucketOrder {
    observed,    ///< make buckets anew when gradients come in another order
    registered,  ///< keep the first layout: last registered parameter first
};

/// What finish() leaves in the buckets.
enum class GradientResult {
    everywhere,  ///< every rank has all averages
    own_piece,   ///< each rank has the averages of its piece of each bucket only (ZeRO-1, see sharded_optimizer.h);
                 ///< implies BucketOrder::registered and WireFormat::same
};

enum class Inputs {
    even,    ///< all ranks take the same number of steps
    uneven,  ///< ranks that ran out call join(); costs one more small all-reduce a step
};

enum class FiniteCheck {
    off,
    on,  ///< finish() returns an error that names the parameter and a rank with a NaN or infinity; reads gradients once
};

struct ReducerOptions {
    static constexpr double automatic = 0;
    /// In MiB. `automatic` measures latency and bandwidth at the start, and chooses; description() says what.
    double bucket_cap_mb = 25;
    double first_bucket_mb = 1;  ///< small, so that communication starts early
    double last_bucket_mb = 1;   ///< small, since nothing hides it
    WireFormat wire = WireFormat::same;
    int power_rank = 2;                   ///< WireFormat::power: columns of the thin matrices
    std::uint64_t power_start_step = 10;  ///< WireFormat::power: steps before that send gradients as they are
    std::shared_ptr<BucketExchange> exchange = nullptr;  ///< a hook of your own, in place of `wire`
    BucketOrder order = BucketOrder::observed;
    GradientResult result = GradientResult::everywhere;
    Inputs inputs = Inputs::even;
    FiniteCheck finite_check = FiniteCheck::off;
};

/// What a reducer remembers from step to step, for a checkpoint: with it, a training that goes on has the bits of one
/// that never stopped, also with error feedback.
struct ReducerState {
    std::string plan = {};            ///< the buckets, and what was learned of their order; for CheckpointState::values
    std::vector<std::byte> own = {};  ///< this rank's residuals, for CheckpointState::rank_bytes; empty without
};

/// Where gradients lie.
enum class Layout {
    kept,
    moved,  ///< ask for gradient(i) again; all of them are zero
};

class GradientReducer {
  public:
    /// A collective. Compares names, shapes, types, order and options with the other ranks (an error names the first
    /// parameter that differs, and two ranks), then copies rank 0's parameters to all. `communicator` must outlive the
    /// reducer, and so must the parameters' memory.
    static Result<GradientReducer> make(Communicator& communicator, std::vector<Parameter> parameters,
                                        const ReducerOptions& options = {});

    /// In the place of make() on a rank that cannot call it, because what it would give is wrong already (`why`): the
    /// other ranks, which are in make(), learn that at once. Returns `why`, or the failure of the communicator.
    static Error refuse(Communicator& communicator, const Error& why);

    ~GradientReducer();
    GradientReducer(GradientReducer&&) noexcept;
    GradientReducer& operator=(GradientReducer&&) noexcept;

    /// A backward pass that ends with averaging. `samples`: how much this rank's gradient counts, which is the number
    /// of samples it is the mean of, those of the local steps before included; equal on all ranks for a plain mean.
    Result<Layout> begin_step(float samples = 1);

    /// A backward pass that ends without communication (PyTorch's no_sync): gradients accumulate in place, and the next
    /// begin_step() averages the sum.
    Result<Layout> begin_local_step();

    /// The gradient of `parameter` (by order of registration) is complete; on a GPU, with `after`, as soon as that
    /// event (a cudaEvent_t) has come. The event may be recorded anew when this has returned. invalid_argument: it was
    /// marked before in this step, no step has begun, or an event was given for gradients in the host's memory. An
    /// error of communication comes out here or at finish().
    Result<void> mark_ready(int parameter, void* after = nullptr);

    /// The end of either kind of step. An invalid_argument error that is the same on all ranks says that no rank has
    /// samples in the step or, with FiniteCheck::on, which gradient is not finite: averages then mean nothing, and
    /// training may go on.
    Result<void> finish();

    /// With Inputs::uneven: this rank has no more batches. Takes part in the steps of the others, with no weight, until
    /// all ranks have called join(). `apply` is what the trainer does after finish() (the optimizer), so that
    /// parameters stay equal; its first error ends join(). So does an error of finish(): where the others go on after
    /// it, call join() again.
    Result<void> join(const std::function<Result<void>()>& apply);

    /// Where to write a parameter's gradient, and where its average is. Valid until begin_step() or begin_local_step()
    /// says Layout::moved.
    [[nodiscard]] Buffer gradient(int parameter) const;

    /// Did any rank mark it in the last synchronised step, or in a local step before?
    [[nodiscard]] bool used(int parameter) const;

    /// For backward passes that add to gradients instead of writing them. On a GPU it happens behind `after`, the event
    /// of the caller's last work on gradients, and is over when this returns.
    Result<void> zero_gradients(void* after = nullptr);

    /// After finish(): scales all gradients by one factor so that their norm over all parameters that were used is at
    /// most `max_norm`. Returns the norm before. With GradientResult::own_piece, and on GPUs, a collective. On a GPU it
    /// happens behind `after`. Where kernels are missing (see above) gradients then go through the host's memory: 1 /
    /// world of their bytes for the norm, and all of them there and back where it is too large.
    Result<double> clip_grad_norm(double max_norm, void* after = nullptr);

    /// Between steps that average. `to` may have an older state, whose memory is used again.
    void keep(ReducerState& to) const;

    /// A collective, right after make(): goes on from there. `plan` is equal on all ranks (rank 0's: it alone learns);
    /// empty: nothing is done. `own` empty, as in a world of another size: what was lost in rounding before is not made
    /// up for. invalid_argument: it is of other parameters or another wire. Ask for gradient(i) afterwards.
    Result<void> restore(const ReducerState& from);

    /// The trainer waited so long for its input.
    void add_data_wait(Duration wait);

    /// Steps that averaged, since it was made or restored.
    [[nodiscard]] std::uint64_t step_count() const;
    [[nodiscard]] const StepCost& last_step() const;
    /// For scaling_report().
    [[nodiscard]] CostSummary costs() const;

    /// "161 parameters, 97.5 MiB in 6 buckets (cap 25 MiB), wire bf16, shared memory".
    [[nodiscard]] std::string description() const;

    /// The buckets, for those who work on whole ones.
    [[nodiscard]] std::span<const GradientBucket> buckets() const;
    [[nodiscard]] std::span<const Parameter> parameters() const;
    [[nodiscard]] const ReducerOptions& options() const;
    [[nodiscard]] Communicator& communicator() const;

  private:
    explicit GradientReducer(std::unique_ptr<runtime::ReducerBody> body);
    std::unique_ptr<runtime::ReducerBody> body_;
};

}  // namespace muster
