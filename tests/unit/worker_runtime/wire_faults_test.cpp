// Compressed gradients that are no numbers, ranks without samples, and options that contradict each other.
#include <cmath>
#include <limits>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer_story.h"

using namespace muster;
using namespace muster::test;

namespace {

ReducerOptions with(WireFormat wire) {
    ReducerOptions options;
    options.wire = wire;
    options.power_start_step = 0;
    return options;
}

}  // namespace

TEST_CASE("a gradient that is no number comes out as such on all ranks, and is gone in the next step") {
    for (const auto wire : {WireFormat::bf16, WireFormat::int8, WireFormat::power}) {
        INFO("wire " << static_cast<int>(wire));
        ThreadGroup group(2);
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(f32_parameters({4096}), 0);
            auto shaped = parameters.list();
            shaped[0].shape = {64, 64};
            auto reducer = GradientReducer::make(communicator, shaped, with(wire));
            if (!reducer) return complaint(reducer);
            for (int step = 0; step < 4; ++step) {
                (void)reducer->begin_step();
                auto* const values = static_cast<float*>(reducer->gradient(0).data);
                std::fill_n(values, 4096, 1.0f);
                if (step == 1 && communicator.rank() == 1) values[77] = std::numeric_limits<float>::quiet_NaN();
                (void)reducer->mark_ready(0);
                if (auto finished = reducer->finish(); !finished) return complaint(finished);
                if (std::isnan(values[77]) != (step == 1)) return cat("step ", step, ": ", values[77]);
                if (step != 1 && std::abs(values[77] - 1) > 0.05f) return cat("step ", step, ": ", values[77]);
            }
            return {};
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("a rank without samples changes nothing, and loses nothing of what it had not sent") {
    for (const auto wire : {WireFormat::bf16, WireFormat::int8, WireFormat::power}) {
        INFO("wire " << static_cast<int>(wire));
        ThreadGroup group(2);
        auto options = with(wire);
        options.inputs = Inputs::uneven;
        options.power_rank = 1;
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(f32_parameters({4096}), 0);
            auto shaped = parameters.list();
            shaped[0].shape = {64, 64};
            auto reducer = GradientReducer::make(communicator, shaped, options);
            if (!reducer) return complaint(reducer);
            const auto right = [&]() -> Result<void> {
                const float value = static_cast<const float*>(reducer->gradient(0).data)[5];
                if (std::abs(value - 3) < 0.05f) return {};
                return Error{Errc::io, cat("the average is ", value)};
            };
            for (int step = 0; step < (communicator.rank() == 0 ? 3 : 0); ++step) {
                (void)reducer->begin_step(2);
                std::fill_n(static_cast<float*>(reducer->gradient(0).data), 4096, 3.0f);
                (void)reducer->mark_ready(0);
                if (auto finished = reducer->finish(); !finished) return complaint(finished);
                if (auto good = right(); !good) return complaint(good);
            }
            return complaint(reducer->join(right));
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("options that contradict each other are refused") {
    const auto refusal = [](const ReducerOptions& options) {
        ThreadGroup group(1);
        return group.run([&](Communicator& communicator) {
            const OwnedParameters parameters(f32_parameters({4}), 0);
            return complaint(GradientReducer::make(communicator, parameters.list(), options));
        });
    };
    auto options = with(WireFormat::int8);
    options.result = GradientResult::own_piece;
    CHECK(refusal(options).find("own_piece sends gradients as they are") != std::string::npos);
    options = with(WireFormat::power);
    options.power_rank = 0;
    CHECK(refusal(options).find("power_rank must lie from 1 to 64, not 0") != std::string::npos);
}
