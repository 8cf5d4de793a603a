#include "worker_runtime/examples/training.h"

#include <cmath>
#include <optional>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thread_group.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"

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

/// A checkpointer of one rank; none where `directory` is empty.
Result<std::optional<Checkpointer>> open_in(const std::string& directory, Communicator& communicator,
                                            test::StoreInMemory& store) {
    if (directory.empty()) return std::optional<Checkpointer>();
    auto opened =
        Checkpointer::open(communicator, store.connect(), {.job = "job", .round = 0}, {.directory = directory});
    if (!opened) return opened.error();
    return std::optional(std::move(*opened));
}

/// Trains with one thread a rank.
Outcome train_world(std::size_t world, const TrainingPlan& plan, const std::string& directory = {}) {
    test::ThreadGroup group(static_cast<int>(world));
    test::StoreInMemory store;
    Outcome outcome{
        .weights = std::vector<Result<Weights>>(world, Error{Errc::io, "did not run"}), .losses = {}, .first_step = 0};
    digits();
    group.run([&](Communicator& communicator) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        TrainingEvents events;
        if (rank == 0) {
            events.started = [&outcome](std::uint64_t step, bool) { outcome.first_step = step; };
            events.step_done = [&outcome](std::uint64_t, const BatchSums& sums) {
                outcome.losses.push_back(sums.loss / sums.sample_count);
            };
        }
        auto checkpointer = open_in(directory, communicator, store);
        if (!checkpointer) {
            outcome.weights[rank] = checkpointer.error();
            return std::string();
        }
        auto trained = train(plan, communicator, digits(), events,
                             {.checkpointer = *checkpointer ? &**checkpointer : nullptr, .notice = nullptr});
        outcome.weights[rank] = trained ? Result<Weights>(weights_of(trained->network)) : trained.error();
        return std::string();
    });
    return outcome;
}

/// Two ranks, of which one fails before step 25: with checkpoints every 10 that leaves the one of step 10, in the
/// middle of the first epoch, and mostly that of step 20, in the middle of the second.
void stop_before_step_25(const TrainingPlan& plan, const std::string& directory) {
    test::ThreadGroup group(2);
    test::StoreInMemory store;
    const auto complaint = group.run([&](Communicator& communicator) {
        TrainingEvents events;
        events.before_step = [&communicator](std::uint64_t step) {
            if (step == 25 && communicator.rank() == 1) communicator.abort("killed for the test");
        };
        auto checkpointer = open_in(directory, communicator, store);
        if (!checkpointer) return checkpointer.error().context;
        const auto trained =
            train(plan, communicator, digits(), events, {.checkpointer = &**checkpointer, .notice = nullptr});
        return trained ? std::string("no failure") : std::string();
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
        if (test::under_thread_sanitizer && world != 4) continue;
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
    const TrainingPlan plan{.epochs = 3, .checkpoint_every = 10};
    const auto whole = train_world(2, plan);
    stop_before_step_25(plan, folder / "c");
    const auto resumed = train_world(2, plan, folder / "c");
    CHECK((resumed.first_step == 10 || resumed.first_step == 20));
    REQUIRE(resumed.weights[1].has_value());
    CHECK(*resumed.weights[1] == *whole.weights[0]);
}

TEST_CASE("what compression held back comes back too, and so do the bits") {
    for (const auto wire : {WireFormat::int8, WireFormat::power}) {
        const test::ScratchFolder folder;
        TrainingPlan plan{.epochs = 3, .wire = wire};
        const auto whole = train_world(2, plan);
        REQUIRE(whole.losses.size() == 45);
        // Step 1 has just asked for new buckets, those of step 2 have their first residuals, 17 has Q of many steps.
        for (const std::uint64_t step : {1, 2, 17}) {
            if (test::under_thread_sanitizer && step != 17) continue;
            const auto directory = folder / cat("c", step);
            plan.leave_at_step = step;
            REQUIRE(train_world(2, plan, directory).losses.size() == step);
            plan.leave_at_step = 0;
            const auto resumed = train_world(2, plan, directory);
            CHECK(resumed.first_step == step);
            REQUIRE(resumed.weights[1].has_value());
            CHECK(*resumed.weights[0] == *whole.weights[0]);
            CHECK(*resumed.weights[1] == *whole.weights[0]);
        }
    }
}

TEST_CASE("in another world what compression held back is left behind, and the training goes on") {
    const test::ScratchFolder folder;
    TrainingPlan plan{.epochs = 2, .wire = WireFormat::int8, .leave_at_step = 17};
    REQUIRE(train_world(2, plan, folder / "c").weights[0].has_value());
    plan.leave_at_step = 0;
    const auto larger = train_world(3, plan, folder / "c");
    REQUIRE(larger.weights[2].has_value());
    CHECK(larger.losses.size() == 13);
    CHECK(larger.losses.back() < larger.losses.front());
}

TEST_CASE("a training that goes on with another wire is told so by all ranks") {
    const test::ScratchFolder folder;
    TrainingPlan plan{.epochs = 1, .wire = WireFormat::int8};
    REQUIRE(train_world(2, plan, folder / "c").weights[0].has_value());
    plan.epochs = 2;
    plan.wire = WireFormat::power;
    const auto refused = train_world(2, plan, folder / "c");
    for (const auto& each : refused.weights) {
        REQUIRE(each.has_error());
        CHECK_THAT(each.error().context, Catch::Contains("not of wire PowerSGD"));
    }
}

TEST_CASE("a run that goes on in another world takes the losses of one that never stopped") {
    const TrainingPlan plan{.epochs = 3, .checkpoint_every = 10};
    const auto alone = train_world(1, plan);
    for (const std::size_t world : {1, 3, 4}) {
        const test::ScratchFolder folder;
        stop_before_step_25(plan, folder / "c");
        const auto resumed = train_world(world, plan, folder / "c");
        REQUIRE(resumed.first_step >= 10);
        REQUIRE(resumed.losses.size() == alone.losses.size() - resumed.first_step);
        for (std::size_t step = 0; step < resumed.losses.size(); ++step) {
            INFO("world " << world << ", step " << step + resumed.first_step);
            const auto expected = alone.losses[step + resumed.first_step];
            REQUIRE(std::abs(resumed.losses[step] - expected) <= 1e-5 * expected);
        }
    }
}

TEST_CASE("a finished run trains no more, and a longer one goes on from its end") {
    const test::ScratchFolder folder;
    const auto first = train_world(2, {.epochs = 1}, folder / "c");
    const auto again = train_world(2, {.epochs = 1}, folder / "c");
    CHECK(again.first_step == 15);
    CHECK(again.losses.empty());
    CHECK(*again.weights[0] == *first.weights[0]);
    const auto longer = train_world(2, {.epochs = 2}, folder / "c");
    CHECK(longer.first_step == 15);
    CHECK(*longer.weights[1] == *train_world(2, {.epochs = 2}).weights[1]);
}

TEST_CASE("a checkpoint that was made on other digits is refused by all ranks") {
    const test::ScratchFolder folder;
    {
        test::ThreadGroup group(1);
        test::StoreInMemory store;
        CHECK(group.run([&](Communicator& communicator) -> std::string {
            auto checkpointer = open_in(folder / "c", communicator, store);
            DigitsNetwork network;
            auto parameters = network.parameters();
            CheckpointState state;
            for (const auto& parameter : parameters) {
                for (const char* prefix : {"", "velocity."}) {
                    state.tensors.push_back(
                        StateTensor::whole(prefix + parameter.name, TensorType::f32, parameter.shape, parameter.data));
                }
            }
            state.values["sampler"] = ElasticSampler::make({.sample_count = 1'000, .batch_size = 96})->state();
            if (auto saved = (*checkpointer)->save(3, state); !saved) return saved.error().context;
            auto done = (*checkpointer)->finish();
            return done ? "" : done.error().context;
        }) == "");
    }
    const auto outcome = train_world(2, {.epochs = 1}, folder / "c");
    for (const auto& weights : outcome.weights) {
        REQUIRE(weights.has_error());
        CHECK_THAT(weights.error().context, Catch::Contains("data with 1000 samples, but this sampler has 1438"));
    }
}
