// Data-parallel training of the digit classifier: one global batch a step, each rank takes its share, the gradients are
// added in rank order, and every rank takes the same step, so that all hold the same weights without ever sending them.
//
// The result depends on the digits, the options and the world, and on nothing else: a run that was killed and went on
// from a checkpoint ends with the same bits as one that was not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "worker_runtime/examples/all_gather.h"
#include "worker_runtime/examples/digits_data.h"
#include "worker_runtime/examples/softmax_model.h"

namespace muster::runtime {

struct TrainingPlan {
    std::uint64_t epochs = 30;
    std::uint64_t batch_size = 96;  ///< over all ranks
    double learning_rate = 0.5;
    std::string checkpoint = {};          ///< file; empty: none. All ranks read it, rank 0 writes it
    std::uint64_t checkpoint_every = 50;  ///< steps between two checkpoints; there is one more at the end
};

/// What the caller learns on the way. Any of them may be empty.
struct TrainingEvents {
    std::function<void(std::uint64_t step)> started;  ///< once; the number of steps that a checkpoint already holds
    std::function<void(std::uint64_t step)> before_step;
    std::function<void(std::uint64_t epoch, const GradientSum& sum)>
        epoch_done;  ///< sums of the epoch's steps run here
};

/// The number of steps in all.
std::uint64_t step_count(const TrainingPlan& plan, std::size_t train_count);

/// Trains from the checkpoint, or from nothing where there is none. Errors: the checkpoint cannot be read or written,
/// ranks start from different steps or weights (a checkpoint file that they do not share), the store fails.
Result<SoftmaxModel> train(const TrainingPlan& plan, Place place, const DigitSet& digits, AllGather& exchange,
                           const TrainingEvents& events);

}  // namespace muster::runtime
