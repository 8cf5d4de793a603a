// Keeps the gradients of f16 training in f16's range: scales the loss, skips steps that overflow, adapts the scale.
//
//     auto scaler = muster::LossScaler::make();
//     for (each batch) {
//         ... backward of loss x scaler->scale(), and reducer->finish() as usual ...
//         auto finite = scaler->unscale(*reducer);
//         if (*finite) { reducer->clip_grad_norm(1); optimizer->step(); }     // optimizer: yours or ShardedOptimizer
//         scaler->update();
//     }
//
// The rules and the arithmetic are those of torch.amp.GradScaler: the scale has the same bits after the same steps.
// A step with an infinite or NaN gradient multiplies the scale by `backoff_factor`. `growth_interval` steps without
// one multiply it by `growth_factor`, unless that would not be finite.
//
// The averages are looked at, not this rank's own gradients: an infinity of any rank, or of the sum, is in the average
// of all ranks. So all ranks skip the same steps. A skipped step does not count for the optimizer; the order of data
// continues. Leave ReducerOptions::finite_check off, which makes such a step an error of finish().
#pragma once

#include <cstdint>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/error.h"

namespace muster {

struct LossScalerOptions {
    float initial_scale = 65536;
    double growth_factor = 2;
    double backoff_factor = 0.5;
    std::int32_t growth_interval = 2000;  ///< steps without an overflow
};

/// All that changes from step to step. Save it with the checkpoint, and a run that restores it has the same history.
struct LossScalerState {
    float scale = 0;
    std::int32_t growth_tracker = 0;  ///< steps since the last overflow or growth
};

class LossScaler {
  public:
    /// invalid_argument: a scale or factor that is not finite and positive, a growth that does not grow, a backoff that
    /// does not shrink, or an interval below 1.
    static Result<LossScaler> make(const LossScalerOptions& options = {});

    /// The factor for the loss of the next backward pass.
    [[nodiscard]] float scale() const { return state_.scale; }

    /// After the reducer's finish(), once per step: divides all averages by the scale. Returns false if one of them is
    /// infinite or NaN; all averages are undefined then. Equal on all ranks. A collective where clip_grad_norm() is
    /// one; `after` as there. invalid_argument: the reducer's wire carries errors from step to step (int8, power), and
    /// an infinity would stay in them; or the scale has shrunk to nothing, because every step overflowed. Gradients of
    /// f64 count as infinite from 1e154 on.
    Result<bool> unscale(GradientReducer& reducer, void* after = nullptr);

    /// Ends the step: adapts the scale. invalid_argument: there was no unscale() since the last update().
    Result<void> update();

    [[nodiscard]] const LossScalerState& state() const { return state_; }
    /// invalid_argument: it is the state of no scaler.
    Result<void> restore(const LossScalerState& state);

  private:
    explicit LossScaler(const LossScalerOptions& options) : options_(options), state_{options.initial_scale, 0} {}
    LossScalerOptions options_;
    LossScalerState state_;
    enum class Step { none, finite, overflow };
    Step step_ = Step::none;
};

}  // namespace muster
