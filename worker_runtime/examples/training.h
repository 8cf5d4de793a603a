// Data-parallel training of the digit classifier: one global batch a step, each rank takes its share of it, the
// gradient reducer averages by samples while the backward pass goes on, and every rank takes the same step, so that all
// hold the same weights without sending them.
//
// The result depends on the digits, the options and the world, and on nothing else: a run that was killed and went on
// from a checkpoint ends with the same bits as one that was not. Another world rounds differently, and no more: the
// losses agree to 1e-5 of their size.
#pragma once

#include <cstdint>
#include <functional>

#include "muster/checkpoint.h"
#include "muster/communicator.h"
#include "muster/elastic_sampler.h"
#include "muster/gradient_reducer.h"
#include "muster/preemption.h"
#include "worker_runtime/examples/digits_data.h"
#include "worker_runtime/examples/digits_network.h"

namespace muster::runtime {

struct TrainingPlan {
    std::uint64_t epochs = 30;
    std::uint64_t batch_size = 96;  ///< Samples of all ranks.
    double learning_rate = 0.1;
    double momentum = 0.9;
    std::uint64_t checkpoint_every = 50;  ///< Steps between two checkpoints. One more is saved at the end.
    std::uint64_t snapshot_every = 1;     ///< Steps between two copies in the agent's memory.
    WireFormat wire = WireFormat::same;   ///< Format of the gradients between ranks.
    std::uint64_t leave_at_step = 0;      ///< Ends after this step as after a preemption notice. 0: never.
};

/// What a run uses where it is there.
struct TrainingAids {
    Checkpointer* checkpointer = nullptr;      ///< Training resumes from its newest checkpoint and saves more.
    const PreemptionNotice* notice = nullptr;  ///< After a notice: a last checkpoint, and no more steps.
};

struct Trained {
    DigitsNetwork network;
    bool left = false;  ///< A notice arrived: everything is saved, and steps are left.
};

/// What the caller learns on the way. Any of them may be empty.
struct TrainingEvents {
    /// Once: the number of steps that a checkpoint already holds, and whether it came from memory.
    std::function<void(std::uint64_t step, bool from_memory)> started;
    std::function<void(std::uint64_t step)> before_step;
    /// Sums over all ranks: of that step, and of the epoch's steps run here.
    std::function<void(std::uint64_t step, const BatchSums& sums)> step_done;
    std::function<void(std::uint64_t epoch, const BatchSums& sums)> epoch_done;
};

/// At the start of the first epoch; the same on every rank.
ElasticSampler sampler_for(const TrainingPlan& plan, std::size_t train_count);

/// The number of steps in all.
std::uint64_t step_count(const TrainingPlan& plan, std::size_t train_count);

/// Trains from the newest checkpoint, or from nothing where there is none. Errors: no checkpoint is complete, the last
/// one could not be saved, or a rank was lost; every rank gets one.
Result<Trained> train(const TrainingPlan& plan, Communicator& world, const DigitSet& digits,
                      const TrainingEvents& events, const TrainingAids& aids = {});

}  // namespace muster::runtime
