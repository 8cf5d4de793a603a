// What the reducer says that its steps cost.
#include <chrono>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer_story.h"

using namespace muster;
using namespace muster::test;

namespace {

/// A backward pass that takes so long.
void compute(Duration duration) {
    const auto end = std::chrono::steady_clock::now() + duration;
    while (std::chrono::steady_clock::now() < end) {
    }
}

std::string wrong_parts(const StepCost& cost) {
    if (cost.samples != 7) return cat("samples: ", cost.samples);
    if (cost.data_wait != 1us) return "the wait for data is wrong";
    if (cost.total != cost.compute + cost.data_wait + cost.exposed) return "the parts are not the whole";
    // Four buckets, and the control block.
    if (cost.bytes != 4 * 512 + 1 + 8 + 2 * 8) return cat("bytes: ", cost.bytes);
    return {};
}

}  // namespace

TEST_CASE("a step's costs: all ranks' samples, what one waited, and who was late") {
    ThreadGroup group(2);
    std::vector<CostSummary> costs(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        for (int step = 0; step < 6; ++step) {
            reducer->add_data_wait(1us);
            (void)reducer->begin_step(static_cast<float>(3 + communicator.rank()));
            for (const int i : {7, 6}) (void)reducer->mark_ready(i);
            if (communicator.rank() == 1) compute(5ms);
            for (const int i : {5, 4, 3, 2, 1, 0}) (void)reducer->mark_ready(i);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            if (auto parts = wrong_parts(reducer->last_step()); !parts.empty()) return parts;
        }
        costs[static_cast<std::size_t>(communicator.rank())] = reducer->costs();
        return {};
    });
    CHECK(wrong == "");
    CHECK(costs[0].bucket_count == 4);
    CHECK(costs[0].bucket_bytes == 2048);
    CHECK(costs[0].mean.exposed > 2ms);
    CHECK(costs[0].mean.communication > 2ms);
    CHECK(costs[0].lateness[1] > costs[0].lateness[0]);
    CHECK(costs[1].lateness == costs[0].lateness);
}

TEST_CASE("communication that is over before the backward pass is counts as hidden") {
    ThreadGroup group(1);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        (void)reducer->begin_step();
        group.clear_history();
        group.hold();
        for (const int i : {7, 6}) (void)reducer->mark_ready(i);
        // The lane's own thread carries it, and only from there on does it take time.
        if (!group.wait_for_arrival()) return "the bucket was not launched";
        compute(20ms);
        group.let_go();
        if (!group.wait_for_history(1)) return "the bucket was not launched";
        for (const int i : {5, 4, 3, 2, 1, 0}) (void)reducer->mark_ready(i);
        if (auto finished = reducer->finish(); !finished) return complaint(finished);
        return reducer->last_step().overlap() > 10ms ? std::string() : "nothing was hidden";
    });
    CHECK(wrong == "");
}
