#include "worker_runtime/examples/training.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "worker_runtime/examples/checkpoint_file.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// A store in memory, for ranks that are threads.
class MemoryStore : public SharedStore {
  public:
    Result<void> set(const std::string& key, const std::string& value) override {
        const std::lock_guard lock(mutex_);
        values_[key] = value;
        largest_ = std::max(largest_, values_.size());
        changed_.notify_all();
        return {};
    }
    Result<std::string> wait_get(const std::string& key) override {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, 20s, [&] { return values_.contains(key); }))
            return Error{Errc::timed_out, cat("no key ", key)};
        return values_[key];
    }
    Result<void> erase(const std::string& key) override {
        const std::lock_guard lock(mutex_);
        if (values_.erase(key) == 0) return Error{Errc::not_found, key};
        return {};
    }
    std::size_t largest() const { return largest_; }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
    std::size_t largest_ = 0;
};

const DigitSet& digits() {
    static const DigitSet set = *load_digits(MUSTER_DIGITS_FILE);
    return set;
}

struct Outcome {
    std::vector<Result<SoftmaxModel>> models;  ///< by rank
    std::uint64_t first_step = 0;
    std::size_t keys_max = 0;
};

/// Trains with one thread a rank. `plans` has one plan a rank.
Outcome train_together(const std::vector<TrainingPlan>& plans) {
    const auto world = static_cast<std::uint32_t>(plans.size());
    MemoryStore store;
    std::vector<std::optional<Result<SoftmaxModel>>> models(world);
    std::uint64_t first_step = 0;
    digits();
    std::vector<std::jthread> ranks;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
        ranks.emplace_back([&, rank] {
            AllGather exchange(store, {.rank = rank, .world = world}, "training");
            TrainingEvents events;
            if (rank == 0) events.started = [&first_step](std::uint64_t step) { first_step = step; };
            models[rank] = train(plans[rank], {.rank = rank, .world = world}, digits(), exchange, events);
        });
    }
    ranks.clear();
    Outcome outcome{.models = {}, .first_step = first_step, .keys_max = store.largest()};
    for (auto& model : models) outcome.models.push_back(std::move(*model));
    return outcome;
}

Outcome train_world(std::size_t world, const TrainingPlan& plan) {
    return train_together(std::vector<TrainingPlan>(world, plan));
}

}  // namespace

TEST_CASE("all ranks end with the same bits, in every run, whatever the world") {
    const TrainingPlan plan{.epochs = 2};
    for (const std::size_t world : {1, 2, 3}) {
        const auto once = train_world(world, plan), again = train_world(world, plan);
        for (std::size_t rank = 0; rank < world; ++rank) {
            REQUIRE(once.models[rank].has_value());
            CHECK(once.models[rank]->weights == once.models[0]->weights);
            CHECK(once.models[rank]->weights == again.models[rank]->weights);
        }
        CHECK(accuracy(*once.models[0], digits().test) > 0.8);
    }
}

TEST_CASE("a run that stops in the middle of an epoch and goes on ends with the bits of one that did not stop") {
    const test::ScratchFolder folder;
    const auto whole = train_world(1, {.epochs = 3});
    const TrainingPlan plan{.epochs = 3, .checkpoint = folder / "model", .checkpoint_every = 20};
    // A run killed at step 25 leaves the checkpoint of step 20, in the middle of the second epoch.
    MemoryStore store;
    AllGather alone(store, {}, "killed");
    struct Killed {};
    const TrainingEvents kill{.started = {},
                              .before_step =
                                  [](std::uint64_t step) {
                                      if (step == 25) throw Killed();
                                  },
                              .epoch_done = {}};
    REQUIRE_THROWS_AS(train(plan, {}, digits(), alone, kill), Killed);
    const auto resumed = train_world(1, plan);
    CHECK(resumed.first_step == 20);
    REQUIRE(resumed.models[0].has_value());
    CHECK(resumed.models[0]->weights == whole.models[0]->weights);
}

TEST_CASE("the store holds two gatherings at most, however long the training") {
    const auto outcome = train_world(3, {.epochs = 2});
    REQUIRE(outcome.models[0].has_value());
    CHECK(outcome.keys_max <= 2 * 3);
}

TEST_CASE("ranks that start from different checkpoints refuse to train together") {
    const test::ScratchFolder folder;
    const TrainingPlan fresh{.epochs = 1, .checkpoint = folder / "absent"};
    REQUIRE(save_checkpoint(folder / "old", {.step = 3, .weights = SoftmaxModel{}.weights}).has_value());
    TrainingPlan old = fresh;
    old.checkpoint = folder / "old";
    const auto outcome = train_together({fresh, old});
    for (const auto& model : outcome.models) {
        REQUIRE(model.has_error());
        CHECK(model.error().code == Errc::invalid_argument);
    }
}

TEST_CASE("a checkpoint of another model is refused") {
    const test::ScratchFolder folder;
    REQUIRE(save_checkpoint(folder / "model", {.step = 3, .weights = {1, 2}}).has_value());
    const auto outcome = train_world(1, {.checkpoint = folder / "model"});
    CHECK(outcome.models[0].has_error());
}
