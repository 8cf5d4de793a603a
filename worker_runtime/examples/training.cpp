#include "worker_runtime/examples/training.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/examples/checkpoint_file.h"

namespace muster::runtime {

namespace {

/// More than its text can have.
constexpr std::size_t sampler_state_room = 512;

/// What a checkpoint holds, as the trainer uses it.
struct State {
    std::uint64_t step = 0;
    ElasticSampler sampler;
    DigitsNetwork network;
    std::vector<std::vector<float>> velocity;  ///< of each parameter, for the momentum

    explicit State(ElasticSampler from) : sampler(std::move(from)) {
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
    Checkpoint checkpoint{.step = state.step, .values = {}, .sampler = state.sampler.state()};
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
    auto placed = state.sampler.load_state((*loaded)->sampler);
    return placed ? placed : with_context(placed.error(), path);
}

/// Only rank 0 needs the file: what the reducer does not broadcast itself comes here.
Result<void> share_start(const TrainingPlan& plan, Communicator& world, State& state) {
    auto shared = world.run(broadcast({&state.step, sizeof state.step, DataType::u8}, 0));
    auto text = state.sampler.state();
    text.resize(sampler_state_room);
    if (shared) shared = world.run(broadcast({text.data(), text.size(), DataType::u8}, 0));
    for (auto& each : state.velocity) {
        if (!shared) return shared;
        shared = world.run(broadcast(buffer(std::span(each)), 0));
    }
    if (shared) shared = state.sampler.load_state(text.c_str());
    // The command line's batch counts, also where the checkpoint was made with another.
    return shared ? state.sampler.set_batch_size(plan.batch_size) : shared;
}

std::vector<const Digit*> own_samples(const Communicator& world, const std::vector<Digit>& train,
                                      const ElasticSampler& sampler, const SampleStep& step) {
    std::vector<const Digit*> samples;
    for (const auto index : *sampler.indices(step, {.rank = world.rank(), .world = world.size()})) {
        samples.push_back(&train[index]);
    }
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
    while (state.sampler.epoch() < plan.epochs) {
        if (events.before_step) events.before_step(state.step);
        const auto step = state.sampler.next();
        auto sums = average_gradients(reducer, state.network, own_samples(world, digits.train, state.sampler, step));
        if (sums) {
            descend(plan, reducer, state);
            sums = add_up(world, *sums);
        }
        if (!sums) return with_context(sums.error(), cat("step ", state.step));
        ++state.step;
        if (auto committed = state.sampler.commit(step); !committed) return committed;
        if (events.step_done) events.step_done(state.step, *sums);
        epoch_sums.add(*sums);
        if (step.ends_epoch) {
            if (events.epoch_done) events.epoch_done(state.sampler.epoch(), epoch_sums);
            epoch_sums = {};
        }
        const bool due = state.step % plan.checkpoint_every == 0 || state.sampler.epoch() == plan.epochs;
        if (world.rank() == 0 && due && !plan.checkpoint.empty()) {
            if (auto saved = save_checkpoint(plan.checkpoint, checkpoint_of(state)); !saved) return saved;
        }
    }
    return {};
}

}  // namespace

ElasticSampler sampler_for(const TrainingPlan& plan, std::size_t train_count) {
    auto sampler = ElasticSampler::make({.sample_count = train_count, .batch_size = plan.batch_size});
    MUSTER_CHECK(sampler.has_value(),
                 sampler.error().context);  // load_digits() gives some, and the options are checked
    return std::move(*sampler);
}

std::uint64_t step_count(const TrainingPlan& plan, std::size_t train_count) {
    return plan.epochs * sampler_for(plan, train_count).steps_per_epoch();
}

Result<DigitsNetwork> train(const TrainingPlan& plan, Communicator& world, const DigitSet& digits,
                            const TrainingEvents& events) {
    MUSTER_CHECK(plan.batch_size > 0 && plan.checkpoint_every > 0, plan.batch_size, plan.checkpoint_every);
    State state(sampler_for(plan, digits.train.size()));
    if (world.rank() == 0) {
        if (auto restored = restore(plan.checkpoint, state); !restored) {
            world.abort(restored.error().context);  // or the others would wait for this rank
            return restored.error();
        }
    }
    auto reducer = GradientReducer::make(world, state.network.parameters());
    if (!reducer) return reducer.error();
    if (auto shared = share_start(plan, world, state); !shared) return shared.error();
    if (events.started) events.started(state.step);
    if (auto ran = run_steps(plan, *reducer, digits, events, state); !ran) return ran.error();
    return std::move(state.network);
}

}  // namespace muster::runtime
