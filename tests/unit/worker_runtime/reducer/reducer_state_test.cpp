// A reducer that is made anew between two steps, as after a restart, and goes on as if it had not been.
#include <optional>

#include "muster/gradient_reducer.h"
#include "tests/support/catch.h"
#include "tests/support/thread_group.h"

using namespace muster;

namespace {

constexpr std::size_t parameter_count = 6;
constexpr int step_count = 16;

struct Run {
    std::vector<float> gradients = {};  ///< of all steps, as rank 0 got them
    std::vector<int> moved = {};        ///< steps that began with new buckets
};

float value_of(int step, int rank, std::size_t parameter, std::size_t i) {
    const auto of = [](auto number) { return static_cast<std::uint32_t>(number); };
    auto bits = of(step) * 7919U + of(rank) * 104729U + of(parameter) * 1299709U + of(i) * 15485863U;
    bits = (bits ^ (bits >> 15U)) * 2246822519U;
    return static_cast<float>(static_cast<std::int32_t>(bits ^ (bits >> 13U))) * 1e-9F;
}

/// Gradients come first to last at first, which is no order that buckets are made for, then in another. From step 3 on
/// nobody uses the last parameter.
Result<void> take_step(GradientReducer& reducer, int step, Run& run) {
    auto begun = reducer.begin_step();
    if (!begun) return begun.error();
    const int rank = reducer.communicator().rank();
    if (rank == 0 && *begun == Layout::moved) run.moved.push_back(step);
    for (std::size_t i = 0; i < parameter_count; ++i) {
        const auto parameter = step < 8 ? i : (i * 5 + 2) % parameter_count;
        if (step >= 3 && parameter == parameter_count - 1) continue;
        const auto gradient = reducer.gradient(static_cast<int>(parameter));
        for (std::size_t j = 0; j < gradient.count; ++j)
            static_cast<float*>(gradient.data)[j] = value_of(step, rank, parameter, j);
        if (auto marked = reducer.mark_ready(static_cast<int>(parameter)); !marked) return marked;
    }
    if (auto finished = reducer.finish(); !finished) return finished;
    for (std::size_t i = 0; rank == 0 && i < parameter_count; ++i) {
        const auto gradient = reducer.gradient(static_cast<int>(i));
        const auto* const values = static_cast<const float*>(gradient.data);
        if (reducer.used(static_cast<int>(i)))
            run.gradients.insert(run.gradients.end(), values, values + gradient.count);
    }
    return {};
}

/// `cut`: before this step the reducers are made anew; -1: never.
Run run_steps(const ReducerOptions& options, int cut) {
    Run run;
    test::ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        std::vector<std::vector<float>> memory;
        std::vector<Parameter> parameters;
        for (std::size_t i = 0; i < parameter_count; ++i) memory.emplace_back(1024 * (1 + i % 3));
        for (std::size_t i = 0; i < parameter_count; ++i) {
            const auto rows = static_cast<std::int64_t>(memory[i].size()) / 32;
            parameters.push_back({.name = "p" + std::to_string(i), .shape = {rows, 32}, .data = memory[i].data()});
        }
        std::optional<GradientReducer> reducer;
        ReducerState state;
        for (int step = 0; step < step_count; ++step) {
            if (step == cut) reducer->keep(state);
            if (step == 0 || step == cut) {
                auto made = GradientReducer::make(communicator, parameters, options);
                if (!made) return made.error().context;
                reducer.emplace(std::move(*made));
                // Only rank 0's plan is kept in a checkpoint.
                std::string plan = state.plan;
                plan.resize(4096, ' ');
                auto told = communicator.run(broadcast({plan.data(), plan.size(), DataType::u8}, 0));
                state.plan = plan.substr(0, plan.find_last_not_of(' ') + 1);
                if (told) told = reducer->restore(state);
                if (!told) return told.error().context;
            }
            if (auto taken = take_step(*reducer, step, run); !taken) return taken.error().context;
        }
        return {};
    });
    CHECK(wrong == "");
    return run;
}

ReducerOptions options_of(WireFormat wire) {
    return {
        .bucket_cap_mb = 0.01, .first_bucket_mb = 0.004, .last_bucket_mb = 0.004, .wire = wire, .power_start_step = 2};
}

}  // namespace

TEST_CASE("a reducer made anew before any step has the gradients and buckets of one that was not") {
    for (const auto wire : {WireFormat::int8, WireFormat::power, WireFormat::same}) {
        const auto whole = run_steps(options_of(wire), -1);
        REQUIRE(whole.moved.size() >= 3);  // another order, twice, and a parameter that nobody uses
        for (int cut = 1; cut < step_count; ++cut) {
            INFO("wire " << static_cast<int>(wire) << ", before step " << cut);
            const auto resumed = run_steps(options_of(wire), cut);
            CHECK(resumed.gradients == whole.gradients);
            CHECK(resumed.moved == whole.moved);
        }
    }
}

TEST_CASE("a saved state brings the size of its buckets, which may have been measured") {
    test::ThreadGroup group(2);
    const auto wrong = group.run([](Communicator& communicator) -> std::string {
        std::vector<float> memory(6144);
        std::vector<Parameter> parameters;
        for (std::size_t i = 0; i < 6; ++i)
            parameters.push_back({.name = "p" + std::to_string(i), .shape = {1024}, .data = memory.data() + 1024 * i});
        auto small = GradientReducer::make(communicator, parameters, options_of(WireFormat::same));
        auto large = GradientReducer::make(communicator, parameters);
        if (!small || !large) return "they were not made";
        if (small->buckets().size() != 4 || large->buckets().size() != 1) return "they have other buckets";
        ReducerState state;
        small->keep(state);
        if (auto taken = large->restore(state); !taken) return taken.error().context;
        return large->buckets().size() == small->buckets().size() ? "" : "the buckets have another size";
    });
    CHECK(wrong == "");
}

TEST_CASE("what was lost in other buckets of the same sizes is refused, whatever the wire") {
    for (const auto wire : {WireFormat::int8, WireFormat::power}) {
        test::ThreadGroup group(2);
        const auto wrong = group.run([wire](Communicator& communicator) -> std::string {
            std::vector<float> memory(4 * 1024);
            std::vector<Parameter> parameters;
            for (std::size_t i = 0; i < 4; ++i)
                parameters.push_back(
                    {.name = "p" + std::to_string(i), .shape = {32, 32}, .data = memory.data() + 1024 * i});
            const auto make = [&] { return GradientReducer::make(communicator, parameters, options_of(wire)); };
            auto reducer = make();
            for (int step = 0; step < 4; ++step) {
                if (!reducer || !reducer->begin_step()) return "no step";
                for (int i = 3; i >= 0; --i) {
                    const auto gradient = reducer->gradient(i);
                    for (std::size_t j = 0; j < gradient.count; ++j)
                        static_cast<float*>(gradient.data)[j] =
                            value_of(step, communicator.rank(), static_cast<std::size_t>(i), j);
                    if (!reducer->mark_ready(i)) return "no step";
                }
                if (!reducer->finish()) return "no step";
            }
            ReducerState state;
            reducer->keep(state);
            if (state.own.empty()) return "nothing was lost";
            // Two parameters of one shape change places: each has the other's residuals then.
            const std::string order = " 3 2 1 0 ";
            const auto at = state.plan.find(order);
            if (at == std::string::npos) return "another order: " + state.plan;
            ReducerState other = state;
            other.plan.replace(at, order.size(), " 3 1 2 0 ");
            auto good = make();
            auto bad = make();
            if (!good || !bad) return "they were not made";
            if (auto taken = good->restore(state); !taken) return taken.error().context;
            const auto taken = bad->restore(other);
            return !taken && taken.error().context.find("is not of wire") != std::string::npos ? "" : "it was taken";
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("a reducer refuses the state of another one") {
    test::ThreadGroup group(1);
    const auto wrong = group.run([](Communicator& communicator) -> std::string {
        std::vector<float> memory(64);
        const std::vector<Parameter> one = {{.name = "a", .shape = {64}, .data = memory.data()}};
        auto reducer = GradientReducer::make(communicator, one);
        if (!reducer) return reducer.error().context;
        ReducerState state;
        reducer->keep(state);
        if (!state.own.empty()) return "there is something to make up for";
        const std::string good = state.plan;
        const std::vector<std::string> bad_plans = {
            good.substr(0, good.size() - 2),   "2" + good.substr(1),      "x",
            "1 0 0 1 1 1 2 0 1 0 0 0 3 0 0 3", "1 0 0 1 1 1 1 0 1 0 0 3", "1 0 0 1 1 1 1 0 0 0 3 3"};
        for (const auto& bad : bad_plans) {
            if (reducer->restore({.plan = bad, .own = {}}).has_value()) return "it took: " + bad;
        }
        if (auto taken = reducer->restore({.plan = good, .own = {}}); !taken) return taken.error().context;
        if (reducer->restore({.plan = good, .own = std::vector<std::byte>(16)})) return "residuals of nobody";
        if (!reducer->begin_step() || !reducer->mark_ready(0)) return "no step";
        if (reducer->restore({.plan = good, .own = {}})) return "it took a state in the middle of a step";
        if (!reducer->finish()) return "no step";
        return reducer->restore({.plan = good, .own = {}}) ? "it took a state after a step" : "";
    });
    CHECK(wrong == "");
}
