#include "worker_runtime/examples/training.h"

#include <cmath>
#include <optional>

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_group.h"
#include "worker_runtime/examples/checkpoint_file.h"

using namespace muster;
using namespace muster::runtime;

namespace {

const DigitSet& digits() {
    static const DigitSet set = *load_digits(MUSTER_DIGITS_FILE);
    return set;
}

using Weights = std::vector<std::vector<float>>;

Weights weights_of(DigitsNetwork& network) {
    Weights weights;
    for (const auto tensor : network.tensors()) weights.emplace_back(tensor.begin(), tensor.end());
    return weights;
}

struct Outcome {
    std::vector<Result<Weights>> weights;  ///< by rank
    std::vector<double> losses;            ///< by step
    std::uint64_t first_step = 0;
};

/// Trains with one thread a rank. `plans` has one plan a rank.
Outcome train_together(const std::vector<TrainingPlan>& plans) {
    const int world = static_cast<int>(plans.size());
    test::ThreadGroup group(world);
    Outcome outcome{.weights = std::vector<Result<Weights>>(plans.size(), Error{Errc::io, "did not run"}),
                    .losses = {},
                    .first_step = 0};
    digits();
    group.run([&](Communicator& communicator) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        TrainingEvents events;
        if (rank == 0) {
            events.started = [&outcome](std::uint64_t step) { outcome.first_step = step; };
            events.step_done = [&outcome](std::uint64_t, const BatchSums& sums) {
                outcome.losses.push_back(sums.loss / sums.sample_count);
            };
        }
        auto network = train(plans[rank], communicator, digits(), events);
        outcome.weights[rank] = network ? Result<Weights>(weights_of(*network)) : network.error();
        return std::string();
    });
    return outcome;
}

Outcome train_world(std::size_t world, const TrainingPlan& plan) {
    return train_together(std::vector<TrainingPlan>(world, plan));
}

/// Two ranks, of which one fails before step 25: with checkpoints every 20 that leaves the one of step 20, in the
/// middle of the second epoch.
void stop_before_step_25(const TrainingPlan& plan) {
    test::ThreadGroup group(2);
    const auto complaint = group.run([&](Communicator& communicator) {
        TrainingEvents events;
        events.before_step = [&communicator](std::uint64_t step) {
            if (step == 25 && communicator.rank() == 1) communicator.abort("killed for the test");
        };
        const auto network = train(plan, communicator, digits(), events);
        return network ? std::string("no failure") : std::string();
    });
    CHECK(complaint.empty());
}

}  // namespace

TEST_CASE("all ranks end with the same bits, in every run") {
    const TrainingPlan plan{.epochs = 2};
    for (const std::size_t world : {1, 3}) {
        const auto once = train_world(world, plan), again = train_world(world, plan);
        for (std::size_t rank = 0; rank < world; ++rank) {
            REQUIRE(once.weights[rank].has_value());
            CHECK(*once.weights[rank] == *once.weights[0]);
            CHECK(*once.weights[rank] == *again.weights[rank]);
        }
    }
}

TEST_CASE("the losses of several ranks are those of one, also where their shares differ") {
    // 1,438 digits in batches of 50: the last one has 38, which neither 3 nor 4 divides.
    const TrainingPlan plan{.epochs = 3, .batch_size = 50};
    const auto alone = train_world(1, plan);
    REQUIRE(alone.losses.size() == 87);
    for (const std::size_t world : {2, 3, 4}) {
        const auto together = train_world(world, plan);
        REQUIRE(together.losses.size() == alone.losses.size());
        for (std::size_t step = 0; step < alone.losses.size(); ++step) {
            INFO("world " << world << ", step " << step);
            REQUIRE(std::abs(together.losses[step] - alone.losses[step]) <= 1e-5 * alone.losses[step]);
        }
    }
}

TEST_CASE("a batch smaller than the world leaves ranks without samples, and does no harm") {
    const TrainingPlan plan{.epochs = 1, .batch_size = 1437};  // the second step has one sample
    const auto alone = train_world(1, plan), together = train_world(3, plan);
    REQUIRE(together.losses.size() == 2);
    CHECK(std::abs(together.losses[1] - alone.losses[1]) <= 1e-5 * alone.losses[1]);
}

TEST_CASE("a run that stops in the middle of an epoch and goes on ends with the bits of one that did not stop") {
    const test::ScratchFolder folder;
    const TrainingPlan plan{.epochs = 3, .checkpoint = folder / "model", .checkpoint_every = 20};
    const auto whole = train_world(2, {.epochs = 3});
    stop_before_step_25(plan);
    const auto resumed = train_world(2, plan);
    CHECK(resumed.first_step == 20);
    REQUIRE(resumed.weights[1].has_value());
    CHECK(*resumed.weights[1] == *whole.weights[0]);
}

TEST_CASE("a run that goes on in another world takes the losses of one that never stopped") {
    const TrainingPlan plain{.epochs = 3};
    const auto alone = train_world(1, plain);
    for (const std::size_t world : {1, 3, 4}) {
        const test::ScratchFolder folder;
        TrainingPlan plan = plain;
        plan.checkpoint = folder / "model";
        plan.checkpoint_every = 20;
        stop_before_step_25(plan);
        const auto resumed = train_world(world, plan);
        REQUIRE(resumed.first_step == 20);
        REQUIRE(resumed.losses.size() == alone.losses.size() - 20);
        for (std::size_t step = 0; step < resumed.losses.size(); ++step) {
            INFO("world " << world << ", step " << step + 20);
            REQUIRE(std::abs(resumed.losses[step] - alone.losses[step + 20]) <= 1e-5 * alone.losses[step + 20]);
        }
    }
}

TEST_CASE("a checkpoint that was made on other digits is refused") {
    const test::ScratchFolder folder;
    const TrainingPlan plan{.epochs = 1, .checkpoint = folder / "model"};
    REQUIRE(train_world(1, plan).weights[0].has_value());
    auto checkpoint = **load_checkpoint(plan.checkpoint);
    auto other = *ElasticSampler::make({.sample_count = 1'000, .batch_size = 96});
    checkpoint.sampler = other.state();
    REQUIRE(save_checkpoint(plan.checkpoint, checkpoint).has_value());
    const auto outcome = train_world(2, plan);
    CHECK_THAT(outcome.weights[0].error().context,
               Catch::Contains("data with 1000 samples, and this sampler has 1438"));
    CHECK(outcome.weights[1].has_error());
}

TEST_CASE("only rank 0 needs the checkpoint") {
    const test::ScratchFolder folder;
    const TrainingPlan keep{.epochs = 1, .checkpoint = folder / "model", .checkpoint_every = 10};
    REQUIRE(train_world(2, keep).weights[0].has_value());
    TrainingPlan more{.epochs = 2, .checkpoint = folder / "model"};
    TrainingPlan elsewhere = more;
    elsewhere.checkpoint = folder / "absent";
    const auto outcome = train_together({more, elsewhere});
    REQUIRE(outcome.weights[1].has_value());
    CHECK(outcome.first_step == 15);
    CHECK(*outcome.weights[1] == *train_world(2, {.epochs = 2}).weights[1]);
}

TEST_CASE("a checkpoint of another model is refused, and no rank waits for the one that found it") {
    const test::ScratchFolder folder;
    for (const std::size_t count : {2, 1 << 19}) {
        REQUIRE(save_checkpoint(folder / "model", {.step = 3, .values = std::vector<float>(count)}).has_value());
        const auto outcome = train_world(2, {.checkpoint = folder / "model"});
        CHECK(outcome.weights[0].error().context.ends_with("a checkpoint of another model"));
        CHECK(outcome.weights[1].has_error());
    }
}
