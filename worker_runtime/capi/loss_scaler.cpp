#include "muster/loss_scaler.h"

#include "muster/muster_loss_scaler.h"
#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/objects.h"

using namespace muster;
using namespace muster::capi;

extern "C" {

muster_status muster_loss_scaler_make(const muster_loss_scaler_options* options, muster_loss_scaler** scaler) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(scaler, "scaler", nullptr));
        const auto given = MUSTER_TRY(read(options));
        LossScalerOptions chosen;
        if (given.initial_scale != 0) chosen.initial_scale = given.initial_scale;
        if (given.growth_factor != 0) chosen.growth_factor = given.growth_factor;
        if (given.backoff_factor != 0) chosen.backoff_factor = given.backoff_factor;
        if (given.growth_interval != 0) chosen.growth_interval = given.growth_interval;
        *scaler = loss_scalers.add(std::make_shared<LossScaler>(MUSTER_TRY(LossScaler::make(chosen))));
        return {};
    });
}

muster_status muster_loss_scaler_state(muster_loss_scaler* scaler, muster_loss_scale* state) {
    return with(__func__, loss_scalers, scaler, [&](auto& own) {
        return write({.size = 0, .scale = own.state().scale, .growth_tracker = own.state().growth_tracker}, state);
    });
}

muster_status muster_loss_scaler_restore(muster_loss_scaler* scaler, const muster_loss_scale* state) {
    return with(__func__, loss_scalers, scaler, [&](auto& own) -> Result<void> {
        if (state == nullptr) return invalid("`state` is NULL");
        const auto given = MUSTER_TRY(read(state));
        return own.restore({.scale = given.scale, .growth_tracker = given.growth_tracker});
    });
}

muster_status muster_loss_scaler_unscale(muster_loss_scaler* scaler, muster_reducer* reducer, int* finite) {
    return with(__func__, loss_scalers, scaler, [&](auto& own) -> Result<void> {
        if (finite == nullptr) return invalid("`finite` is NULL");
        const auto found = MUSTER_TRY(reducers.find(reducer));
        return give(finite, "finite", MUSTER_TRY(own.unscale(found->reducer)));
    });
}

muster_status muster_loss_scaler_update(muster_loss_scaler* scaler) {
    return with(__func__, loss_scalers, scaler, [](auto& own) { return own.update(); });
}

muster_status muster_loss_scaler_release(muster_loss_scaler* scaler) {
    return guarded(__func__, [&] { return loss_scalers.release(scaler); });
}
}
