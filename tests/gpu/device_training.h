// Training without a model on a GPU: made-up gradients are written there behind slow work, marked with events that have
// not come yet, and the averages are compared with what the host computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/gradient_reducer.h"
#include "muster/sharded_optimizer.h"

namespace muster::test {

struct DeviceTraining {
    std::uint64_t steps = 4;
    ReducerOptions options{};
    bool shuffled = false;              ///< gradients come in another order than expected: buckets are made anew
    int unused = -1;                    ///< a parameter that rank 0 alone uses, and only in the first steps
    bool local_steps = false;           ///< a local step before each step
    std::vector<std::uint64_t> ends{};  ///< uneven inputs: steps of each rank, in rank order
    bool with_events = true;            ///< false: the host waits, and marks without an event
    int not_finite = -1;                ///< a parameter of f32 that has an infinity on rank 0: told with a finite_check
    std::uint64_t not_finite_step = 0;
    std::uint64_t zero_step = UINT64_MAX;  ///< in which all gradients are zero

    [[nodiscard]] bool tells_not_finite(std::uint64_t step) const {
        return options.finite_check == FiniteCheck::on && not_finite >= 0 && step == not_finite_step;
    }
};

/// Why this rank's GPU takes no kernels of ours; nothing where it does.
std::string why_no_kernels(Communicator& world);

/// Bounds for the averages of the types that it uses, f32, f64 and bf16, whose sums NCCL makes in an order and
/// precision of its own: absolute, for gradients between -1 and 1.
double tolerance_of(DataType type);

/// What was wrong on this rank; nothing if all was well. Over a compressed wire gradients of f32, and what the reducer
/// keeps for a checkpoint, must have the bits of a reducer on the host.
std::string train_on_device(Communicator& world, const DeviceTraining& how);

/// Clips, and compares the norm and the gradients with what the host computes.
std::string clip_on_device(Communicator& world);

/// Three steps of a sharded optimizer, whose state and parameters must have the bits of the host's arithmetic on the
/// same gradients.
std::string optimize_on_device(Communicator& world, const OptimizerRule& rule);

}  // namespace muster::test
