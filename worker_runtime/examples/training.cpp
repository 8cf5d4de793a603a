#include "worker_runtime/examples/training.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/examples/checkpoint_file.h"
#include "worker_runtime/examples/sample_order.h"

namespace muster::runtime {

namespace {

/// What a checkpoint holds, as the trainer uses it.
struct State {
    std::uint64_t step = 0;
    DigitsNetwork network;
    std::vector<std::vector<float>> velocity;  ///< of each parameter, for the momentum

    State() {
        for (const auto tensor : network.tensors()) velocity.emplace_back(tensor.size(), 0.0F);
    }
};

/// Everything in `state` one behind the other.
std::vector<std::span<float>> tensors_of(State& state) {
    auto all = state.network.tensors();
    for (auto& each : state.velocity) all.emplace_back(each);
    return all;
}

Checkpoint checkpoint_of(State& state) {
    Checkpoint checkpoint{.step = state.step, .values = {}};
    for (const auto tensor : tensors_of(state)) {
        checkpoint.values.insert(checkpoint.values.end(), tensor.begin(), tensor.end());
    }
    return checkpoint;
}

Result<void> restore(const std::string& path, State& state) {
    if (path.empty()) return {};
    auto loaded = load_checkpoint(path);
    if (!loaded) return loaded.error();
    if (!loaded->has_value()) return {};
    auto next = (*loaded)->values.cbegin();
    const auto end = (*loaded)->values.cend();
    for (const auto tensor : tensors_of(state)) {
        if (static_cast<std::size_t>(end - next) < tensor.size()) {
            return Error{Errc::invalid_argument, cat(path, ": a checkpoint of another model")};
        }
        std::copy_n(next, tensor.size(), tensor.begin());
        next += static_cast<std::ptrdiff_t>(tensor.size());
    }
    if (next != end) return Error{Errc::invalid_argument, cat(path, ": a checkpoint of another model")};
    state.step = (*loaded)->step;
    return {};
}

/// Only rank 0 needs the file: what the reducer does not broadcast itself comes here.
Result<void> share_start(Communicator& world, State& state) {
    auto shared = world.run(broadcast({&state.step, sizeof state.step, DataType::u8}, 0));
    for (auto& each : state.velocity) {
        if (!shared) return shared;
        shared = world.run(broadcast(buffer(std::span(each)), 0));
    }
    return shared;
}

std::vector<const Digit*> own_samples(const TrainingPlan& plan, const Communicator& world,
                                      const std::vector<Digit>& train, std::uint64_t step) {
    std::vector<const Digit*> samples;
    const Share share{.rank = world.rank(), .world = world.size()};
    for (const auto index : share_of_step(step, plan.batch_size, train.size(), share)) samples.push_back(&train[index]);
    return samples;
}

std::span<float> floats(const Buffer& buffer) {
    return {static_cast<float*>(buffer.data), buffer.count};
}

/// The step of data-parallel training: afterwards every rank has the average gradients of all samples.
Result<BatchSums> average_gradients(GradientReducer& reducer, DigitsNetwork& network,
                                    std::span<const Digit* const> samples) {
    if (auto begun = reducer.begin_step(static_cast<float>(samples.size())); !begun) return begun.error();
    const auto sums = network.forward(samples);
    auto done = network.backward([&reducer](int parameter) { return floats(reducer.gradient(parameter)); },
                                 [&reducer](int parameter) { return reducer.mark_ready(parameter); });
    if (done) done = reducer.finish();
    return done ? Result<BatchSums>(sums) : done.error();
}

/// Gradient descent with momentum, as torch.optim.SGD has it.
void descend(const TrainingPlan& plan, const GradientReducer& reducer, State& state) {
    const auto rate = static_cast<float>(plan.learning_rate), keep = static_cast<float>(plan.momentum);
    const auto tensors = state.network.tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto gradient = floats(reducer.gradient(static_cast<int>(i)));
        for (std::size_t j = 0; j < gradient.size(); ++j) {
            auto& velocity = state.velocity[i][j];
            velocity = keep * velocity + gradient[j];
            tensors[i][j] -= rate * velocity;
        }
    }
}

Result<BatchSums> add_up(Communicator& world, const BatchSums& mine) {
    std::array sums{mine.loss, mine.sample_count, mine.right_count};
    if (auto added = world.run(all_reduce(buffer(std::span<double>(sums)), ReduceOp::sum)); !added)
        return added.error();
    return BatchSums{.loss = sums[0], .sample_count = sums[1], .right_count = sums[2]};
}

Result<void> run_steps(const TrainingPlan& plan, GradientReducer& reducer, const DigitSet& digits,
                       const TrainingEvents& events, State& state) {
    auto& world = reducer.communicator();
    BatchSums epoch_sums;
    const auto steps = step_count(plan, digits.train.size());
    const auto per_epoch = steps_per_epoch(plan.batch_size, digits.train.size());
    while (state.step < steps) {
        if (events.before_step) events.before_step(state.step);
        auto sums = average_gradients(reducer, state.network, own_samples(plan, world, digits.train, state.step));
        if (sums) {
            descend(plan, reducer, state);
            sums = add_up(world, *sums);
        }
        if (!sums) return with_context(sums.error(), cat("step ", state.step));
        ++state.step;
        if (events.step_done) events.step_done(state.step, *sums);
        epoch_sums.add(*sums);
        if (state.step % per_epoch == 0) {
            if (events.epoch_done) events.epoch_done(state.step / per_epoch, epoch_sums);
            epoch_sums = {};
        }
        const bool due = state.step % plan.checkpoint_every == 0 || state.step == steps;
        if (world.rank() == 0 && due && !plan.checkpoint.empty()) {
            if (auto saved = save_checkpoint(plan.checkpoint, checkpoint_of(state)); !saved) return saved;
        }
    }
    return {};
}

}  // namespace

std::uint64_t step_count(const TrainingPlan& plan, std::size_t train_count) {
    return plan.epochs * steps_per_epoch(plan.batch_size, train_count);
}

Result<DigitsNetwork> train(const TrainingPlan& plan, Communicator& world, const DigitSet& digits,
                            const TrainingEvents& events) {
    MUSTER_CHECK(plan.batch_size > 0 && plan.checkpoint_every > 0, plan.batch_size, plan.checkpoint_every);
    State state;
    if (world.rank() == 0) {
        if (auto restored = restore(plan.checkpoint, state); !restored) {
            world.abort(restored.error().context);  // or the others would wait for this rank
            return restored.error();
        }
    }
    auto reducer = GradientReducer::make(world, state.network.parameters());
    if (!reducer) return reducer.error();
    if (auto shared = share_start(world, state); !shared) return shared.error();
    if (events.started) events.started(state.step);
    if (auto ran = run_steps(plan, *reducer, digits, events, state); !ran) return ran.error();
    return std::move(state.network);
}

}  // namespace muster::runtime
