// Compressed gradients that are no numbers, ranks without samples, and options that contradict each other.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/wires/residuals.h"

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
            // Padding follows in the same block, which nobody writes.
            const OwnedParameters parameters(f32_parameters({1000}), 0);
            auto shaped = parameters.list();
            shaped[0].shape = {50, 20};
            auto reducer = GradientReducer::make(communicator, shaped, with(wire));
            if (!reducer) return complaint(reducer);
            for (int step = 0; step < 4; ++step) {
                (void)reducer->begin_step();
                auto* const values = static_cast<float*>(reducer->gradient(0).data);
                std::fill_n(values, 1000, 1.0f);
                if (step == 1 && communicator.rank() == 1) values[777] = std::numeric_limits<float>::quiet_NaN();
                (void)reducer->mark_ready(0);
                if (auto finished = reducer->finish(); !finished) return complaint(finished);
                if (std::isnan(values[777]) != (step == 1)) return cat("step ", step, ": ", values[777]);
                if (step != 1 && std::abs(values[777] - 1) > 0.05f) return cat("step ", step, ": ", values[777]);
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

TEST_CASE("a step in which no rank has samples is an error on all ranks, and harms no later step") {
    for (const auto wire : {WireFormat::same, WireFormat::bf16, WireFormat::int8, WireFormat::power}) {
        INFO("wire " << static_cast<int>(wire));
        ThreadGroup group(2);
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(f32_parameters({4096}), 0);
            auto shaped = parameters.list();
            shaped[0].shape = {64, 64};
            auto reducer = GradientReducer::make(communicator, shaped, with(wire));
            if (!reducer) return complaint(reducer);
            for (int step = 0; step < 4; ++step) {
                (void)reducer->begin_step(step == 1 ? 0 : 2);
                std::fill_n(static_cast<float*>(reducer->gradient(0).data), 4096, 3.0f);
                (void)reducer->mark_ready(0);
                const auto finished = complaint(reducer->finish());
                const std::string expected =
                    step == 1 ? "gradient step 1: no rank has samples in this step, so there is no average" : "";
                if (finished != expected) return cat("step ", step, " says: ", finished);
                const float value = static_cast<const float*>(reducer->gradient(0).data)[5];
                if (step != 1 && !(std::abs(value - 3) < 0.05f)) return cat("step ", step, " gives ", value);
            }
            return {};
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("int8: what a rank lost waits while it has no samples") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters({64}), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), with(WireFormat::int8));
        if (!reducer) return complaint(reducer);
        // Rank 1 has samples in the first step and the last: 0.4 of a unit is lost in each, and comes as one in the
        // end.
        for (int step = 0; step < 3; ++step) {
            const bool counts = (communicator.rank() == 1) == (step != 1);
            (void)reducer->begin_step(counts ? 1 : 0);
            auto* const values = static_cast<float*>(reducer->gradient(0).data);
            std::fill_n(values, 64, communicator.rank() == 1 && counts ? 0.4f : 0.0f);
            if (communicator.rank() == 1 && counts) values[0] = 127;
            (void)reducer->mark_ready(0);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            if (std::abs(values[5] - (step == 2 ? 1.0f : 0.0f)) > 0.01f) return cat("step ", step, ": ", values[5]);
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("PowerSGD: what a rank lost waits while it has no samples") {
    ThreadGroup group(2);
    auto options = with(WireFormat::power);
    options.power_rank = 1;
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        auto shaped = f32_parameters({4096});
        shaped[0].shape = {64, 64};
        const OwnedParameters parameters(shaped, 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        // Rank 1's first gradient has two independent rows, of which one column tells half; all later ones are zero.
        for (int step = 0; step < 3; ++step) {
            const bool counts = (communicator.rank() == 1) == (step != 1);
            (void)reducer->begin_step(counts ? 1 : 0);
            auto* const values = static_cast<float*>(reducer->gradient(0).data);
            for (std::size_t i = 0; i < 4096; ++i) {
                const bool set = communicator.rank() == 1 && step == 0 && i / 64 % 2 == i % 2;
                values[i] = set ? static_cast<float>(1 + i % 3) : 0.0f;
            }
            (void)reducer->mark_ready(0);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            const float largest = *std::max_element(values, values + 4096);
            if ((largest > 0.1f) != (step != 1)) return cat("step ", step, ": ", largest);
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("int8: what a rank lost comes with the next step, also where that has new buckets") {
    ThreadGroup group(2);
    auto options = with(WireFormat::int8);
    options.bucket_cap_mb = options.first_bucket_mb = options.last_bucket_mb = 256.0 / (1 << 20);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters({64, 64}), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        for (int step = 0; step < 2; ++step) {
            // Rank 1 alone has samples: of 0.4 of a unit nothing comes at first, and twice 0.4 as one.
            const auto layout = reducer->begin_step(communicator.rank() == 1 ? 1 : 0);
            if (!layout) return complaint(layout);
            if ((*layout == Layout::moved) != (step == 1)) return cat("step ", step, " has the other layout");
            for (const int i : {0, 1}) {
                auto* const values = static_cast<float*>(reducer->gradient(i).data);
                std::fill_n(values, 64, 0.4f);
                values[0] = 127;
                (void)reducer->mark_ready(i);
            }
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            for (const int i : {0, 1}) {
                const float value = static_cast<const float*>(reducer->gradient(i).data)[5];
                if (std::abs(value - static_cast<float>(step)) > 0.01f) return cat("step ", step, ": ", value);
            }
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("PowerSGD: a gradient comes through after steps in which there was none") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters({4096}), 0);
        auto shaped = parameters.list();
        shaped[0].shape = {64, 64};
        auto reducer = GradientReducer::make(communicator, shaped, with(WireFormat::power));
        if (!reducer) return complaint(reducer);
        for (int step = 0; step < 4; ++step) {
            (void)reducer->begin_step();
            auto* const values = static_cast<float*>(reducer->gradient(0).data);
            std::fill_n(values, 4096, step < 2 ? 0.0f : 1.0f);
            (void)reducer->mark_ready(0);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            if (step == 2 && std::abs(values[77] - 1) > 0.01f) return cat("it is ", values[77]);
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("what compression lost goes with its parameter into new buckets") {
    const auto parameters = f32_parameters({2, 3});
    const auto bucket = [](std::size_t index, std::size_t count, std::span<const BucketSlice> slices) {
        return GradientBucket{
            .index = index, .gradients = {.data = nullptr, .count = count, .type = DataType::f32}, .slices = slices};
    };
    const std::vector<BucketSlice> together{{.parameter = 0, .offset = 0, .count = 2},
                                            {.parameter = 1, .offset = 16, .count = 3}};
    const std::vector<BucketSlice> second{{.parameter = 1, .offset = 0, .count = 3}};
    const std::vector<BucketSlice> first{{.parameter = 0, .offset = 4, .count = 2}};
    const std::vector<GradientBucket> before{bucket(0, 32, together)};
    const std::vector<GradientBucket> after{bucket(0, 16, second), bucket(1, 16, first)};
    runtime::Residuals residuals;
    residuals.prepare(parameters, before);
    const auto lost = residuals.of(before[0]);
    std::iota(lost.begin(), lost.end(), 1.0f);
    residuals.prepare(parameters, after);
    const auto of_second = residuals.of(after[0]);
    const auto of_first = residuals.of(after[1]);
    CHECK(std::vector(of_second.begin(), of_second.begin() + 4) == std::vector<float>{17, 18, 19, 0});
    CHECK(std::vector(of_first.begin() + 3, of_first.begin() + 7) == std::vector<float>{0, 1, 2, 0});
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
    CHECK(refusal(options).find("own_piece supports neither `wire` nor `exchange`") != std::string::npos);
    options = with(WireFormat::power);
    options.power_rank = 0;
    CHECK(refusal(options).find("power_rank must be 1 to 64, not 0") != std::string::npos);
}
