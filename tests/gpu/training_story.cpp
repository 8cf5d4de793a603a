#include "tests/gpu/training_story.h"

#include <algorithm>
#include <limits>

#include "rendezvous/base/text/text.h"
#include "tests/support/thread_group.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/core/registration.h"

namespace muster::test {

std::vector<Parameter> mixed_parameters() {
    return {
        {.name = "a", .shape = {300}, .type = DataType::f32},  {.name = "b", .shape = {64, 5}, .type = DataType::f32},
        {.name = "c", .shape = {1000}, .type = DataType::f32}, {.name = "d", .shape = {77}, .type = DataType::f64},
        {.name = "e", .shape = {129}, .type = DataType::bf16}, {.name = "f", .shape = {80, 50}, .type = DataType::f32}};
}

bool TrainingStory::uses(std::uint64_t step, int rank, std::size_t parameter) const {
    return static_cast<int>(parameter) != how.unused || (rank == 0 && (step < 4 || step == 8));
}

bool TrainingStory::runs(std::uint64_t step, int rank) const {
    return how.ends.empty() || step < how.ends[static_cast<std::size_t>(rank)];
}

float TrainingStory::samples(std::uint64_t step, int rank) const {
    return runs(step, rank) ? static_cast<float>(1 + (step + static_cast<std::uint64_t>(rank)) % 3) : 0.0f;
}

std::vector<std::byte> TrainingStory::own(std::uint64_t step, int rank, std::size_t parameter) const {
    const auto shape = mixed_parameters()[parameter];
    const auto count = runtime::element_count(shape);
    if (!runs(step, rank) || !uses(step, rank, parameter)) return std::vector<std::byte>(count * size_of(shape.type));
    auto values = made_up(shape.type, count, seed_of(step, rank, parameter));
    if (step == how.zero_step) std::fill(values.begin(), values.end(), std::byte{0});
    if (rank == 0 && static_cast<int>(parameter) == how.not_finite && step == how.not_finite_step) {
        const float bad = std::numeric_limits<float>::infinity();
        std::memcpy(values.data() + values.size() - sizeof bad, &bad, sizeof bad);
    }
    return values;
}

std::vector<std::size_t> TrainingStory::given(std::uint64_t step, int rank) const {
    const auto count = mixed_parameters().size();
    std::vector<std::size_t> order;
    for (std::size_t k = 0; k < count; ++k) {
        const std::size_t i = how.shuffled ? k : count - 1 - k;
        if (uses(step, rank, i) && !(how.local_steps && i < count / 2)) order.push_back(i);
    }
    return order;
}

std::vector<std::size_t> TrainingStory::given_before(std::uint64_t step, int rank) const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; how.local_steps && i < mixed_parameters().size() / 2; ++i) {
        if (uses(step, rank, i)) order.push_back(i);
    }
    return order;
}

namespace {

/// One rank's part of train_on_host().
class HostTrainer {
  public:
    HostTrainer(Communicator& world, const TrainingStory& story, HostRun& run)
        : world_(world), story_(story), run_(run), parameters_(mixed_parameters(), 0) {}

    std::string train() {
        auto made = GradientReducer::make(world_, parameters_.list(), story_.how.options);
        if (!made) return complaint(made);
        reducer_ = std::move(*made);
        std::uint64_t number = 0;
        for (; number < story_.how.steps && story_.runs(number, world_.rank()); ++number) {
            if (auto wrong = step(number); !wrong.empty()) return wrong;
        }
        if (!story_.how.ends.empty()) {
            const auto joined = reducer_->join([&]() -> Result<void> {
                note(number++);
                return {};
            });
            if (!joined) return complaint(joined);
        }
        reducer_->keep(run_.states[static_cast<std::size_t>(world_.rank())]);
        return "";
    }

  private:
    std::string step(std::uint64_t number) {
        const int rank = world_.rank();
        if (story_.how.local_steps) {
            if (auto begun = reducer_->begin_local_step(); !begun) return complaint(begun);
            for (const auto i : story_.given_before(number, rank)) give(number, i);
            if (auto ended = reducer_->finish(); !ended) return complaint(ended);
        }
        if (auto begun = reducer_->begin_step(story_.samples(number, rank)); !begun) return complaint(begun);
        for (const auto i : story_.given(number, rank)) give(number, i);
        const auto finished = reducer_->finish();
        const bool told = story_.how.tells_not_finite(number);
        if (finished.has_value() == told) return cat("step ", number, ": ", complaint(finished));
        note(number);
        return "";
    }
    void give(std::uint64_t number, std::size_t i) {
        write(reducer_->gradient(static_cast<int>(i)), story_.own(number, world_.rank(), i));
        (void)reducer_->mark_ready(static_cast<int>(i));
    }
    void note(std::uint64_t number) {
        if (world_.rank() != 0) return;
        auto& step = run_.gradients[number];
        for (std::size_t i = 0; i < parameters_.list().size(); ++i) {
            const Buffer gradient = reducer_->gradient(static_cast<int>(i));
            const auto* const bytes = static_cast<const std::byte*>(gradient.data);
            step.emplace_back(bytes, bytes + gradient.size_bytes());
        }
    }

    Communicator& world_;
    const TrainingStory& story_;
    HostRun& run_;
    OwnedParameters parameters_;
    std::optional<GradientReducer> reducer_;
};

}  // namespace

HostRun train_on_host(const TrainingStory& story) {
    HostRun run;
    run.gradients.resize(story.how.steps);
    run.states.resize(static_cast<std::size_t>(story.size));
    ThreadGroup group(story.size);
    run.wrong = group.run([&](Communicator& world) { return HostTrainer(world, story, run).train(); });
    return run;
}

}  // namespace muster::test
