#include "worker_runtime/examples/training.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/examples/checkpoint_file.h"

namespace muster::runtime {

namespace {

/// splitmix64 (Steele, Lea, Flood 2014): the same numbers with every standard library.
std::uint64_t next_random(std::uint64_t& state) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

/// The order in which epoch `epoch` visits the samples (Fisher and Yates).
std::vector<std::size_t> sample_order(std::uint64_t epoch, std::size_t count) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::uint64_t state = epoch;
    for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[next_random(state) % i]);
    return order;
}

std::uint64_t steps_per_epoch(const TrainingPlan& plan, std::size_t train_count) {
    return (train_count + plan.batch_size - 1) / plan.batch_size;
}

std::string encode(const GradientSum& sum) {
    std::string bytes;
    ByteWriter writer(bytes);
    for (const double value : sum.gradient) writer.number(std::bit_cast<std::uint64_t>(value));
    for (const double value : {sum.loss, sum.sample_count, sum.right_count})
        writer.number(std::bit_cast<std::uint64_t>(value));
    return bytes;
}

bool decode(std::string_view bytes, GradientSum& sum) {
    ByteReader reader(bytes);
    const auto take = [&reader] { return std::bit_cast<double>(reader.number<std::uint64_t>()); };
    for (auto& value : sum.gradient) value = take();
    sum.loss = take();
    sum.sample_count = take();
    sum.right_count = take();
    return reader.finished();
}

/// The sum over all ranks, added in rank order.
Result<GradientSum> add_up(AllGather& exchange, const GradientSum& mine) {
    auto all = exchange.gather(encode(mine));
    if (all.has_error()) return all.error();
    GradientSum total;
    for (std::size_t rank = 0; rank < all->size(); ++rank) {
        GradientSum part;
        if (!decode((*all)[rank], part)) return Error{Errc::bad_frame, cat("rank ", rank, " sent no gradient")};
        add(total, part);
    }
    return total;
}

/// Ranks that start from different points would train nonsense together.
Result<void> agree_on_start(AllGather& exchange, const Checkpoint& start) {
    std::string mine = cat("step ", start.step, ", weights ");
    std::string bytes;
    for (const double weight : start.weights) ByteWriter(bytes).number(std::bit_cast<std::uint64_t>(weight));
    mine += cat(fingerprint(bytes));
    auto all = exchange.gather(mine);
    if (all.has_error()) return all.error();
    for (std::size_t rank = 0; rank < all->size(); ++rank) {
        if ((*all)[rank] == mine) continue;
        return Error{Errc::invalid_argument, cat("rank ", rank, " starts from ", (*all)[rank], " but this one from ",
                                                 mine, "; give all ranks the same --checkpoint file")};
    }
    return {};
}

Result<Checkpoint> starting_point(const TrainingPlan& plan) {
    Checkpoint start{.step = 0, .weights = SoftmaxModel{}.weights};
    if (plan.checkpoint.empty()) return start;
    auto loaded = load_checkpoint(plan.checkpoint);
    if (loaded.has_error()) return loaded.error();
    if (!loaded->has_value()) return start;
    if ((*loaded)->weights.size() != softmax_weight_count)
        return Error{Errc::invalid_argument, cat(plan.checkpoint, ": a checkpoint of another model")};
    return **loaded;
}

/// This rank's part of the batch of `step`: every world-th sample.
GradientSum share_of_step(const TrainingPlan& plan, Place place, const std::vector<Digit>& train, std::uint64_t step,
                          const SoftmaxModel& model) {
    const auto per_epoch = steps_per_epoch(plan, train.size());
    // Recomputed each step: it costs microseconds, and a step then depends on its number alone.
    const auto order = sample_order(step / per_epoch, train.size());
    const auto first = step % per_epoch * plan.batch_size;
    const auto end = std::min<std::uint64_t>(first + plan.batch_size, train.size());
    GradientSum sum;
    for (auto i = first + place.rank; i < end; i += place.world) add_sample(sum, model, train[order[i]]);
    return sum;
}

}  // namespace

std::uint64_t step_count(const TrainingPlan& plan, std::size_t train_count) {
    return plan.epochs * steps_per_epoch(plan, train_count);
}

Result<SoftmaxModel> train(const TrainingPlan& plan, Place place, const DigitSet& digits, AllGather& exchange,
                           const TrainingEvents& events) {
    MUSTER_CHECK(plan.batch_size > 0 && plan.checkpoint_every > 0, plan.batch_size, plan.checkpoint_every);
    auto start = starting_point(plan);
    if (start.has_error()) return start.error();
    if (auto agreed = agree_on_start(exchange, *start); agreed.has_error()) return agreed.error();
    if (events.started) events.started(start->step);

    SoftmaxModel model{.weights = start->weights};
    GradientSum epoch_sum;
    const auto steps = step_count(plan, digits.train.size());
    const auto per_epoch = steps_per_epoch(plan, digits.train.size());
    for (auto step = start->step; step < steps; ++step) {
        if (events.before_step) events.before_step(step);
        auto sum = add_up(exchange, share_of_step(plan, place, digits.train, step, model));
        if (sum.has_error()) return with_context(sum.error(), cat("step ", step));
        descend(model, *sum, plan.learning_rate);
        add(epoch_sum, *sum);
        const auto done = step + 1;
        if (done % per_epoch == 0) {
            if (events.epoch_done) events.epoch_done(done / per_epoch, epoch_sum);
            epoch_sum = {};
        }
        const bool due = done % plan.checkpoint_every == 0 || done == steps;
        if (place.rank == 0 && due && !plan.checkpoint.empty()) {
            auto saved = save_checkpoint(plan.checkpoint, {.step = done, .weights = model.weights});
            if (saved.has_error()) return saved.error();
        }
    }
    return model;
}

}  // namespace muster::runtime
