#include "muster/loss_scaler.h"

#include <cmath>
#include <limits>
#include <random>

#include "muster/sharded_optimizer.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"

using namespace muster;
using namespace muster::test;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

/// One step of a model of f32 parameters: all gradients are `value`, but the last element of parameter `odd`.
Result<void> take_step(GradientReducer& reducer, int parameter_count, float value, int odd = -1, float odd_value = 0) {
    if (auto begun = reducer.begin_step(1); !begun) return begun.error();
    for (int i = 0; i < parameter_count; ++i) {
        const Buffer gradient = reducer.gradient(i);
        auto* const elements = static_cast<float*>(gradient.data);
        std::fill(elements, elements + gradient.count, value);
        if (i == odd) elements[gradient.count - 1] = odd_value;
        if (auto marked = reducer.mark_ready(i); !marked) return marked;
    }
    return reducer.finish();
}

float first_of(const GradientReducer& reducer, int parameter) {
    return *static_cast<const float*>(reducer.gradient(parameter).data);
}

}  // namespace

TEST_CASE("a scaler refuses options and states that make no sense") {
    CHECK(LossScaler::make().has_value());
    CHECK_FALSE(LossScaler::make({.initial_scale = 0}).has_value());
    CHECK_FALSE(LossScaler::make({.initial_scale = infinite}).has_value());
    CHECK_FALSE(LossScaler::make({.growth_factor = 1}).has_value());
    CHECK_FALSE(LossScaler::make({.backoff_factor = 1}).has_value());
    CHECK_FALSE(LossScaler::make({.growth_interval = 0}).has_value());
    auto scaler = LossScaler::make().value();
    CHECK_FALSE(scaler.update().has_value());
    CHECK_FALSE(scaler.restore({.scale = -1, .growth_tracker = 0}).has_value());
    CHECK_FALSE(scaler.restore({.scale = 1, .growth_tracker = -1}).has_value());
    CHECK(scaler.scale() == 65536);
}

TEST_CASE("an overflow on any rank is one for all, and a finite step divides the averages by the scale") {
    for (const int world : {1, 2, 3}) {
        for (const auto result : {GradientResult::everywhere, GradientResult::own_piece}) {
            ThreadGroup group(world);
            CHECK(group.run([&](Communicator& communicator) -> std::string {
                const OwnedParameters parameters(eight(), 1);
                auto options = small_buckets();
                options.result = result;
                auto reducer = GradientReducer::make(communicator, parameters.list(), options);
                if (!reducer) return complaint(reducer);
                auto scaler = LossScaler::make({.initial_scale = 1024, .growth_interval = 2}).value();
                float scale = 1024;
                for (int step = 0; step < 8; ++step) {
                    const bool overflows = step % 4 == 1;
                    const bool is_culprit = step % world == communicator.rank();
                    const float odd = step > 3 ? std::nanf("") : infinite;
                    auto done =
                        take_step(*reducer, 8, scaler.scale() * 3, overflows && is_culprit ? step % 8 : -1, odd);
                    if (!done) return complaint(done);
                    const auto finite = scaler.unscale(*reducer);
                    if (!finite) return complaint(finite);
                    if (*finite == overflows) return cat("step ", step, ": finite is ", *finite);
                    // Of the bucket that parameter 1 begins.
                    const bool has_begin = result == GradientResult::everywhere || communicator.rank() == 0;
                    if (*finite && has_begin && first_of(*reducer, 1) != 3) return cat("step ", step, ": not unscaled");
                    if (!complaint(scaler.update()).empty()) return "update";
                    // Overflows at 1 and 5; two clean steps at 3 and 7.
                    if (overflows) scale /= 2;
                    if (step % 4 == 3) scale *= 2;
                    if (scaler.scale() != scale) return cat("step ", step, ": ", scaler.scale(), ", not ", scale);
                }
                return {};
            }) == "");
        }
    }
}

TEST_CASE("a restored scaler has the history of the one that was kept") {
    ThreadGroup group(1);
    CHECK(group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 1);
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        const LossScalerOptions options{
            .initial_scale = 77.7f, .growth_factor = 1.3, .backoff_factor = 0.37, .growth_interval = 3};
        auto first = LossScaler::make(options).value();
        std::mt19937 random(3);
        std::vector<bool> pattern;
        std::vector<float> history;
        LossScalerState kept;
        for (int step = 0; step < 60; ++step) {
            pattern.push_back(random() % 5 == 0);
            if (auto done = take_step(*reducer, 8, 1, pattern.back() ? 0 : -1, infinite); !done) return complaint(done);
            if (auto done = first.unscale(*reducer); !done) return complaint(done);
            if (step == 31)
                kept = first.state();  // in the middle of an interval and of a step: it counts from its begin
            (void)first.update();
            history.push_back(first.scale());
        }
        auto second = LossScaler::make(options).value();
        if (auto restored = second.restore(kept); !restored) return complaint(restored);
        for (std::size_t step = 31; step < 60; ++step) {
            if (auto done = take_step(*reducer, 8, 1, pattern[step] ? 0 : -1, infinite); !done) return complaint(done);
            if (auto done = second.unscale(*reducer); !done) return complaint(done);
            (void)second.update();
            if (second.scale() != history[step]) return cat("step ", step);
        }
        return {};
    }) == "");
}

TEST_CASE("unscale() out of order, or over a wire that keeps errors, is refused") {
    ThreadGroup group(1);
    CHECK(group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 1);
        auto options = small_buckets();
        options.wire = WireFormat::int8;
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        auto scaler = LossScaler::make().value();
        if (auto done = take_step(*reducer, 8, 1); !done) return complaint(done);
        if (complaint(scaler.unscale(*reducer)).find("int8") == std::string::npos) return "int8 passed";
        reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        if (auto done = take_step(*reducer, 8, 1); !done) return complaint(done);
        if (auto done = scaler.unscale(*reducer); !done) return complaint(done);
        if (complaint(scaler.unscale(*reducer)).find("twice") == std::string::npos) return "twice passed";
        if (auto updated = scaler.update(); !updated) return complaint(updated);
        (void)reducer->begin_step(1);
        return complaint(scaler.unscale(*reducer)).find("after finish()") == std::string::npos ? "in a pass" : "";
    }) == "");
}
