// The part of muster.h for f16 training. Include muster.h. Details: loss_scaler.h.
#ifndef MUSTER_MUSTER_LOSS_SCALER_H
#define MUSTER_MUSTER_LOSS_SCALER_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- loss scaling with the rules of torch.amp.GradScaler; since version 8 ----
//
//     muster_loss_scaler_make(NULL, &scaler);
//     muster_loss_scaler_state(scaler, &state);  ... backward of loss x state.scale, muster_reducer_finish() ...
//     muster_loss_scaler_unscale(scaler, reducer, &finite);
//     if (finite) ... optimizer ...
//     muster_loss_scaler_update(scaler);

typedef struct muster_loss_scaler muster_loss_scaler;

typedef struct muster_loss_scaler_options {
    size_t size;
    float initial_scale;      // 0: 65536
    double growth_factor;     // 0: 2
    double backoff_factor;    // 0: 0.5
    int32_t growth_interval;  // steps without an overflow; 0: 2000
} muster_loss_scaler_options;

// All that changes from step to step: save it with the checkpoint.
typedef struct muster_loss_scale {
    size_t size;
    float scale;             // the factor for the loss of the next backward pass
    int32_t growth_tracker;  // steps since the last overflow or growth
} muster_loss_scale;

// `options` may be NULL.
muster_status muster_loss_scaler_make(const muster_loss_scaler_options* options, muster_loss_scaler** scaler);
muster_status muster_loss_scaler_state(muster_loss_scaler* scaler, muster_loss_scale* state);
muster_status muster_loss_scaler_restore(muster_loss_scaler* scaler, const muster_loss_scale* state);

// After muster_reducer_finish(), once per step: divides all averages by the scale. `*finite`, equal on all ranks: 0 if
// an average is infinite or NaN; all are undefined then, and the optimizer skips the step. A collective where
// muster_reducer_clip_grad_norm() is one. Not with the wires int8 and power.
muster_status muster_loss_scaler_unscale(muster_loss_scaler* scaler, muster_reducer* reducer, int* finite);
// Ends the step: adapts the scale.
muster_status muster_loss_scaler_update(muster_loss_scaler* scaler);

muster_status muster_loss_scaler_release(muster_loss_scaler* scaler);

#ifdef __cplusplus
}
#endif

#endif
