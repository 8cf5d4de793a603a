// Averages gradients over the ranks of a data-parallel training run during the backward pass.
//
//     auto reducer = muster::GradientReducer::make(world, parameters);      // compares models, broadcasts rank 0's
//     for (each batch) {
//         reducer->begin_step(batch.size());
//         ... forward; backward writes reducer->gradient(i), then calls reducer->mark_ready(i) ...
//         reducer->finish();                                                // every gradient is the average now
//         ... optimizer ...
//     }
//
// Gradients live in the reducer's buckets, in memory that all-reduce works on in place. The backward pass writes each
// gradient at gradient(i), and the optimizer reads it there. A bucket (25 MiB by default) is launched as soon as it and
// the buckets before it are complete. The idea is from Li et al., "PyTorch Distributed", VLDB 2020; core/bucket_plan.h
// and core/bucket_schedule.h describe the differences.
//
// The average weights each rank by its samples: sum(samples x gradient) / sum(samples), summed in f32 (f64 gradients in
// f64) in rank order. Without compression it has the same bits on every run and for every layout of buckets.
//
// All ranks must make reducers of equal models and options. All ranks must call begin_step(), finish(), join(), and
// clip_grad_norm() of sharded gradients, in the same order. The number of local steps in between may differ.
//
// Unused parameters. A parameter that this rank did not mark contributes zeros. If no rank marked it, used(i) is false
// after finish(), its gradient is undefined, and the optimizer should skip it, as PyTorch skips a parameter whose
// gradient is None. A parameter that no rank uses for some steps is not sent until a rank uses it again. Nothing needs
// to be declared.
//
// Layout. If gradients arrive in another order than expected, the reducer makes new buckets (rank 0 decides, at the end
// of a step). begin_step() then returns Layout::moved: call gradient(i) again.
//
// Threads. Several threads may call mark_ready() at once. All other functions need one thread at a time, and none may
// run beside mark_ready(). Do not use the communicator for anything else between begin_step() and finish().
//
// GPUs. Over NCCL the buckets are in GPU memory, and parameters may be there too. mark_ready() takes a CUDA event: the
// all-reduce of the bucket starts on the GPU after the events of all its gradients, and the host continues. A mark
// without an event means that the gradient is complete. finish() returns when the averages are complete on the GPU, so
// later work on any stream reads them without waiting for an event. Before begin_step() makes new buckets
// (Layout::moved), it waits until the GPU is idle, so work that reads gradients may still be running at that moment.
// NCCL chooses the order and precision of the sums: they are equal on all ranks, but may differ from the host's in the
// last bits. Compressed wires compute their own sums and have the host's bits. Compressed wires, FiniteCheck and the
// sharded optimizer compute on the GPU. They need CUDA runtime 12.8 or newer and a plugin that was built with a GPU
// compiler; otherwise make() returns an error with the reason. WireFormat::power sends gradients uncompressed before
// power_start_step and in buckets without a matrix worth compressing: NCCL computes those sums.
//
// Failures. Every error names the step, and the parameter or rank that caused it. After a communication error the
// communicator and the reducer are dead: every later call returns that first error.
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

/// The format in which f32 gradients travel between ranks. Gradients of other types travel unchanged.
enum class WireFormat {
    same,   ///< unchanged
    bf16,   ///< half the bytes; each rank's gradient is rounded once, sums run in f32, the average is rounded once
    f16,    ///< as bf16, with more digits and less range: a gradient beyond 65504 becomes infinite
    int8,   ///< about a quarter of the bytes; the rounding error is added to the next step's gradient (error feedback)
    power,  ///< PowerSGD (Vogels et al., NeurIPS 2019): matrices as products of two thin ones, with error feedback
};

enum class BucketOrder {
    observed,    ///< make new buckets when gradients arrive in another order
    registered,  ///< keep the first layout: last registered parameter first
};

/// The contents of the buckets after finish().
enum class GradientResult {
    everywhere,  ///< every rank has all averages
    own_piece,   ///< each rank has the averages of its own piece of each bucket (ZeRO-1, see sharded_optimizer.h);
                 ///< implies BucketOrder::registered and WireFormat::same
};

enum class Inputs {
    even,    ///< all ranks take the same number of steps
    uneven,  ///< ranks without more batches call join(); costs one more small all-reduce per step
};

enum class FiniteCheck {
    off,
    on,  ///< finish() returns an error that names the parameter and a rank with a NaN or infinity; reads gradients once
};

struct ReducerOptions {
    static constexpr double automatic = 0;
    /// In MiB. `automatic` measures latency and bandwidth at the start and chooses a value; description() shows it.
    double bucket_cap_mb = 25;
    double first_bucket_mb = 1;  ///< small, so that communication starts early
    double last_bucket_mb = 1;   ///< small, because no compute hides it
    WireFormat wire = WireFormat::same;
    int power_rank = 2;                   ///< WireFormat::power: columns of the thin matrices
    std::uint64_t power_start_step = 10;  ///< WireFormat::power: the steps before this one send gradients unchanged
    std::shared_ptr<BucketExchange> exchange = nullptr;  ///< your own exchange (hook), instead of `wire`
    BucketOrder order = BucketOrder::observed;
    GradientResult result = GradientResult::everywhere;
    Inputs inputs = Inputs::even;
    FiniteCheck finite_check = FiniteCheck::off;
};

/// The state that a reducer keeps from step to step, for a checkpoint. A run that restores it continues with the same
/// bits as a run that never stopped, also with error feedback.
struct ReducerState {
    std::string plan = {};  ///< the buckets and their learned order; put it into CheckpointState::values
    std::vector<std::byte> own =
        {};  ///< this rank's residuals, for CheckpointState::rank_bytes; empty without residuals
};

/// Whether the addresses of gradients have changed.
enum class Layout {
    kept,
    moved,  ///< call gradient(i) again; all gradients are zero
};

class GradientReducer {
  public:
    /// A collective. Compares names, shapes, types, order and options with the other ranks; an error names two ranks
    /// and the first parameter that differs. Then it copies rank 0's parameters to all ranks. `communicator` and the
    /// parameters' memory must outlive the reducer.
    static Result<GradientReducer> make(Communicator& communicator, std::vector<Parameter> parameters,
                                        const ReducerOptions& options = {});

    /// Call this instead of make() on a rank whose arguments are already known to be wrong (`why`): the other ranks,
    /// which are in make(), fail at once. Returns `why`, or the failure of the communicator.
    static Error refuse(Communicator& communicator, const Error& why);

    ~GradientReducer();
    GradientReducer(GradientReducer&&) noexcept;
    GradientReducer& operator=(GradientReducer&&) noexcept;

    /// Begins a step that ends with averaging. `samples` is the weight of this rank's gradient: the number of samples
    /// in its mean, including those of the local steps before. Pass the same value on all ranks for a plain mean.
    Result<Layout> begin_step(float samples = 1);

    /// Begins a step without communication (PyTorch's no_sync). Gradients accumulate in place, and the next
    /// begin_step() averages the sum.
    Result<Layout> begin_local_step();

    /// Marks the gradient of `parameter` (by order of registration) as complete. On a GPU, pass the event (a
    /// cudaEvent_t) after which it is complete; the event may be recorded again after this returns. invalid_argument:
    /// the parameter was marked before in this step, no step has begun, or the gradients are in host memory and an
    /// event was passed. A communication error is returned here or by finish().
    Result<void> mark_ready(int parameter, void* after = nullptr);

    /// Ends either kind of step. invalid_argument, the same on all ranks: no rank has samples in this step or, with
    /// FiniteCheck::on, a gradient is not finite. The averages are then undefined, and training may continue.
    Result<void> finish();

    /// With Inputs::uneven: this rank has no more batches. Takes part in the steps of the other ranks with weight 0,
    /// until all ranks have called join(). `apply` is the trainer's work after finish() (the optimizer), so that
    /// parameters stay equal. Its first error ends join(), and so does an error of finish(): if the other ranks
    /// continue after it, call join() again.
    Result<void> join(const std::function<Result<void>()>& apply);

    /// The address of a parameter's gradient, and of its average after finish(). Valid until begin_step() or
    /// begin_local_step() returns Layout::moved.
    [[nodiscard]] Buffer gradient(int parameter) const;

    /// True if any rank marked the parameter in the last averaged step, or in a local step before it.
    [[nodiscard]] bool used(int parameter) const;

    /// For backward passes that add to gradients instead of overwriting them. On a GPU, `after` is the event of the
    /// caller's last work on gradients; the zeroing runs after it and is complete when this returns.
    Result<void> zero_gradients(void* after = nullptr);

    /// After finish(): scales all gradients by one factor, so that their norm over all used parameters is at most
    /// `max_norm`. Returns the norm before scaling. A collective with GradientResult::own_piece, and on GPUs. On a GPU
    /// it runs after `after`. Without kernels (see above) gradients pass through host memory: 1 / world of their bytes
    /// for the norm, and all of them both ways if the norm is too large.
    Result<double> clip_grad_norm(double max_norm, void* after = nullptr);

    /// After finish(): multiplies all gradients by `factor` > 0, if all averages are finite. Returns whether they are;
    /// otherwise they are undefined. Collective, `after` and kernels as for clip_grad_norm(). invalid_argument: the
    /// wire keeps rounding errors, where an infinity would stay. See loss_scaler.h.
    Result<bool> scale_gradients(double factor, void* after = nullptr);

    /// Copies the state into `to`, and reuses the memory of an older state there. Call it between averaged steps.
    void keep(ReducerState& to) const;

    /// A collective, right after make(): continues from the state. `plan` is rank 0's on all ranks, because rank 0
    /// alone learns the order; if it is empty, nothing is done. If `own` is empty, as in a world of another size,
    /// earlier rounding errors are lost. invalid_argument: the state belongs to other parameters or another wire. Call
    /// gradient(i) again afterwards.
    Result<void> restore(const ReducerState& from);

    /// Adds a time during which the trainer waited for its input.
    void add_data_wait(Duration wait);

    /// The number of averaged steps since the reducer was made or restored.
    [[nodiscard]] std::uint64_t step_count() const;
    [[nodiscard]] const StepCost& last_step() const;
    /// The input of scaling_report().
    [[nodiscard]] CostSummary costs() const;

    /// A text such as "161 parameters, 97.5 MiB in 6 buckets (cap 25 MiB), wire bf16, shared memory".
    [[nodiscard]] std::string description() const;

    /// The buckets, for code that works on whole buckets.
    [[nodiscard]] std::span<const GradientBucket> buckets() const;
    [[nodiscard]] std::span<const Parameter> parameters() const;
    [[nodiscard]] const ReducerOptions& options() const;
    [[nodiscard]] Communicator& communicator() const;

  private:
    explicit GradientReducer(std::unique_ptr<runtime::ReducerBody> body);
    std::unique_ptr<runtime::ReducerBody> body_;
};

}  // namespace muster
