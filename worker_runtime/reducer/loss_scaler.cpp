#include "muster/loss_scaler.h"

#include <cmath>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

Error invalid(std::string why) {
    return {Errc::invalid_argument, cat("loss scaler: ", why)};
}

Result<void> check(const LossScalerState& state) {
    if (!(state.scale > 0) || !std::isfinite(state.scale))
        return invalid(cat("the scale is ", state.scale, "; it is a finite number > 0"));
    if (state.growth_tracker < 0)
        return invalid(cat("the growth tracker is ", state.growth_tracker, "; it is a number of steps, 0 or more"));
    return {};
}

}  // namespace

Result<LossScaler> LossScaler::make(const LossScalerOptions& options) {
    MUSTER_TRY(check(LossScalerState{options.initial_scale, 0}));
    if (!(options.growth_factor > 1) || !std::isfinite(options.growth_factor))
        return invalid(cat("the growth factor is ", options.growth_factor, "; it is a finite number > 1"));
    if (!(options.backoff_factor > 0 && options.backoff_factor < 1))
        return invalid(cat("the backoff factor is ", options.backoff_factor, "; it is a number between 0 and 1"));
    if (options.growth_interval < 1)
        return invalid(cat("the growth interval is ", options.growth_interval, " steps; it is at least 1"));
    return LossScaler(options);
}

Result<bool> LossScaler::unscale(GradientReducer& reducer, void* after) {
    if (step_ != Step::none) return invalid("unscale() was called twice in one step; call update() in between");
    // The inverse as torch has it: in f64, rounded once.
    const auto inverse = static_cast<float>(1.0 / static_cast<double>(state_.scale));
    if (!std::isfinite(inverse))
        return invalid(cat("the scale has shrunk to ", state_.scale,
                           " by overflows in step after step; look for what makes "
                           "the loss or a gradient infinite or NaN whatever the scale"));
    const auto finite = reducer.scale_gradients(static_cast<double>(inverse), after);
    if (!finite) return finite;
    step_ = *finite ? Step::finite : Step::overflow;
    return finite;
}

/// torch's _amp_update_scale_: products in f64, rounded to f32.
Result<void> LossScaler::update() {
    if (step_ == Step::none) return invalid("update() without unscale(): whether the step overflowed is not known");
    const bool overflow = step_ == Step::overflow;
    step_ = Step::none;
    if (overflow) {
        state_.scale = static_cast<float>(static_cast<double>(state_.scale) * options_.backoff_factor);
        state_.growth_tracker = 0;
        return {};
    }
    // As in torch, a restored tracker beyond the interval of these options never reaches it.
    if (++state_.growth_tracker != options_.growth_interval) return {};
    const auto grown = static_cast<float>(static_cast<double>(state_.scale) * options_.growth_factor);
    if (std::isfinite(grown)) state_.scale = grown;
    state_.growth_tracker = 0;
    return {};
}

Result<void> LossScaler::restore(const LossScalerState& state) {
    MUSTER_TRY(check(state));
    state_ = state;
    step_ = Step::none;
    return {};
}

}  // namespace muster
