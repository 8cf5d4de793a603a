#include "worker_runtime/examples/training.h"

#include <array>
#include <utility>
#include <vector>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// What a checkpoint holds, as the trainer uses it.
struct State {
    std::uint64_t step = 0;
    bool from_memory = false;
    ElasticSampler sampler;
    DigitsNetwork network;
    std::vector<std::vector<float>> velocity;  ///< Momentum of each parameter.
    ReducerState reducer;

    explicit State(ElasticSampler from) : sampler(std::move(from)) {
        for (const auto tensor : network.tensors()) velocity.emplace_back(tensor.size(), 0.0F);
    }
};

constexpr const char* sampler_key = "sampler";
constexpr const char* reducer_key = "reducer";

CheckpointState checkpoint_of(State& state) {
    CheckpointState checkpoint;
    const auto parameters = state.network.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto& parameter = parameters[i];
        const auto type = tensor_type(parameter.type);
        checkpoint.tensors.push_back(StateTensor::whole(parameter.name, type, parameter.shape, parameter.data));
        checkpoint.tensors.push_back(
            StateTensor::whole("velocity." + parameter.name, type, parameter.shape, state.velocity[i].data()));
    }
    checkpoint.values[sampler_key] = state.sampler.state();
    checkpoint.values[reducer_key] = state.reducer.plan;
    checkpoint.rank_bytes = state.reducer.own;
    return checkpoint;
}

Result<void> restore(const TrainingPlan& plan, Checkpointer& checkpointer, State& state) {
    auto checkpoint = checkpoint_of(state);
    auto loaded = MUSTER_TRY(checkpointer.load(checkpoint));
    if (!loaded.has_value()) return {};
    state.step = static_cast<std::uint64_t>(loaded->step);
    state.from_memory = loaded->from_memory;
    state.reducer = {.plan = checkpoint.values[reducer_key], .own = std::move(checkpoint.rank_bytes)};
    auto placed = state.sampler.load_state(checkpoint.values[sampler_key]);
    // The command line's batch counts, also where the checkpoint was made with another.
    if (placed) placed = state.sampler.set_batch_size(plan.batch_size);
    return placed ? placed : with_context(placed.error(), state.from_memory ? "the agents' copy" : loaded->path);
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
    MUSTER_TRY(reducer.begin_step(static_cast<float>(samples.size())));
    const auto sums = network.forward(samples);
    MUSTER_TRY(network.backward([&reducer](int parameter) { return floats(reducer.gradient(parameter)); },
                                [&reducer](int parameter) { return reducer.mark_ready(parameter); }));
    MUSTER_TRY(reducer.finish());
    return sums;
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
    MUSTER_TRY(world.run(all_reduce(buffer(std::span<double>(sums)), ReduceOp::sum)));
    return BatchSums{.loss = sums[0], .sample_count = sums[1], .right_count = sums[2]};
}

/// One step of all ranks, up to the new weights; the sums are all ranks'.
Result<BatchSums> take_step(const TrainingPlan& plan, GradientReducer& reducer, const DigitSet& digits,
                            const SampleStep& step, State& state) {
    auto& world = reducer.communicator();
    auto sums = average_gradients(reducer, state.network, own_samples(world, digits.train, state.sampler, step));
    if (sums) {
        descend(plan, reducer, state);
        sums = add_up(world, *sums);
    }
    if (!sums) return with_context(sums.error(), cat("step ", state.step));
    ++state.step;
    MUSTER_TRY(state.sampler.commit(step));
    return sums;
}

/// True: a notice has come, and all is saved.
Result<bool> save_if_due(const TrainingPlan& plan, const GradientReducer& reducer, const TrainingAids& aids,
                         State& state) {
    auto leave = aids.notice != nullptr ? aids.notice->agreed(reducer.communicator()) : Result<bool>(false);
    if (!leave || aids.checkpointer == nullptr) return leave ? Result<bool>(false) : leave;
    if (state.step == plan.leave_at_step) leave = true;
    reducer.keep(state.reducer);
    const bool last = *leave || state.sampler.epoch() == plan.epochs;
    if (!last && state.step % plan.checkpoint_every != 0) {
        if (state.step % plan.snapshot_every != 0) return false;
        MUSTER_TRY(aids.checkpointer->snapshot(static_cast<std::int64_t>(state.step), checkpoint_of(state)));
        return false;
    }
    // These steps are far shorter than a save: without waiting, hardly any checkpoint would be made.
    MUSTER_TRY(aids.checkpointer->save(static_cast<std::int64_t>(state.step), checkpoint_of(state), WhenBusy::wait));
    if (last) MUSTER_TRY(aids.checkpointer->finish());
    return *leave && state.sampler.epoch() < plan.epochs;
}

/// True: a notice has come before the end.
Result<bool> run_steps(const TrainingPlan& plan, GradientReducer& reducer, const DigitSet& digits,
                       const TrainingEvents& events, const TrainingAids& aids, State& state) {
    BatchSums epoch_sums;
    while (state.sampler.epoch() < plan.epochs) {
        if (events.before_step) events.before_step(state.step);
        const auto step = state.sampler.next();
        const auto sums = MUSTER_TRY(take_step(plan, reducer, digits, step, state));
        if (events.step_done) events.step_done(state.step, sums);
        epoch_sums.add(sums);
        if (step.ends_epoch) {
            if (events.epoch_done) events.epoch_done(state.sampler.epoch(), epoch_sums);
            epoch_sums = {};
        }
        const auto left = save_if_due(plan, reducer, aids, state);
        if (!left || *left) return left;
    }
    return false;
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

Result<Trained> train(const TrainingPlan& plan, Communicator& world, const DigitSet& digits,
                      const TrainingEvents& events, const TrainingAids& aids) {
    MUSTER_CHECK(plan.batch_size > 0 && plan.checkpoint_every > 0, plan.batch_size, plan.checkpoint_every);
    State state(sampler_for(plan, digits.train.size()));
    if (aids.checkpointer != nullptr) {
        MUSTER_TRY(restore(plan, *aids.checkpointer, state));
    }
    auto reducer = MUSTER_TRY(GradientReducer::make(world, state.network.parameters(), {.wire = plan.wire}));
    MUSTER_TRY(reducer.restore(state.reducer));
    if (events.started) events.started(state.step, state.from_memory);
    // A round that was killed on its way out had taken the step, and saved.
    if (plan.leave_at_step > 0 && state.step >= plan.leave_at_step) {
        return Trained{.network = std::move(state.network), .left = true};
    }
    const auto left = MUSTER_TRY(run_steps(plan, reducer, digits, events, aids, state));
    return Trained{.network = std::move(state.network), .left = left};
}

}  // namespace muster::runtime
