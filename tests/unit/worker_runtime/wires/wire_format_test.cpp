// What compressed gradients cost on the wire, and what is left of them.
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/reducer/bucket_pipeline.h"

using namespace muster;
using namespace muster::test;

namespace {

constexpr int world = 3;
constexpr double quarter = 0.25;

/// A matrix, a vector, one too small to compress, and one in f64, in buckets of at most 256 KiB.
std::vector<Parameter> model() {
    return {{.name = "matrix", .shape = {160, 320}, .type = DataType::f32},
            {.name = "vector", .shape = {1000}, .type = DataType::f32},
            {.name = "cube", .shape = {7, 3, 2}, .type = DataType::f32},
            {.name = "exact", .shape = {50}, .type = DataType::f64}};
}

ReducerOptions over(WireFormat wire) {
    ReducerOptions options{.bucket_cap_mb = quarter, .first_bucket_mb = quarter, .last_bucket_mb = 0, .wire = wire};
    options.power_start_step = 0;
    return options;
}

/// The gradient of a rank, the same in every step: what all ranks have in common, and something of its own.
std::vector<std::byte> gradient_of(const Parameter& parameter, std::size_t count, int rank, std::size_t index) {
    if (parameter.type != DataType::f32) return made_up(parameter.type, count, seed_of(0, rank, index));
    auto values = made_up(DataType::f32, count, seed_of(0, 99, index));
    const auto own = made_up(DataType::f32, count, seed_of(0, rank, index));
    for (std::size_t i = 0; i < count; ++i) {
        const float sum =
            reinterpret_cast<const float*>(values.data())[i] + 0.2f * reinterpret_cast<const float*>(own.data())[i];
        std::memcpy(values.data() + 4 * i, &sum, 4);
    }
    return values;
}

using EachStep = std::function<std::string(const GradientReducer&, int step, const Communicator&)>;

/// `steps` steps with the same gradients, then `look`.
std::string train(ThreadGroup& group, const ReducerOptions& options, int steps, const EachStep& look) {
    return group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(model(), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        for (int step = 0; step < steps; ++step) {
            if (auto begun = reducer->begin_step(static_cast<float>(1 + communicator.rank())); !begun)
                return complaint(begun);
            for (int i = 3; i >= 0; --i) {
                const Buffer gradient = reducer->gradient(i);
                write(gradient, gradient_of(model()[static_cast<std::size_t>(i)], gradient.count, communicator.rank(),
                                            static_cast<std::size_t>(i)));
                if (auto marked = reducer->mark_ready(i); !marked) return complaint(marked);
            }
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            if (auto wrong = look(*reducer, step, communicator); !wrong.empty()) return cat("step ", step, ": ", wrong);
        }
        return {};
    });
}

/// The average that the ranks should get.
std::vector<std::byte> exact(std::size_t index) {
    const auto parameter = model()[index];
    std::size_t count = 1;
    for (const auto dimension : parameter.shape) count *= static_cast<std::size_t>(dimension);
    std::vector<std::vector<std::byte>> arrays;
    for (int rank = 0; rank < world; ++rank) arrays.push_back(gradient_of(parameter, count, rank, index));
    return average(parameter.type, arrays, {1, 2, 3});
}

double distance(const float* a, const float* b, std::size_t count) {
    double sum = 0;
    double square = 0;
    for (std::size_t i = 0; i < count; ++i) {
        sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
        square += double{b[i]} * b[i];
    }
    return std::sqrt(sum / square);
}

/// Relative error of the matrix in the first step, of its mean over `steps` steps; and whether all ranks agree.
struct Quality {
    double first = 0;
    double mean = 0;
    std::string wrong;
};

Quality quality(WireFormat wire, int steps) {
    ThreadGroup group(world);
    Quality result;
    std::vector<std::vector<std::byte>> seen(world);
    const auto expected = exact(0);
    const std::size_t count = expected.size() / 4;
    std::vector<float> sum(count);
    result.wrong = train(
        group, over(wire), steps, [&](const GradientReducer& reducer, int step, const Communicator& communicator) {
            const Buffer matrix = reducer.gradient(0);
            const auto* const values = static_cast<const float*>(matrix.data);
            const auto rank = static_cast<std::size_t>(communicator.rank());
            const auto* const bytes = static_cast<const std::byte*>(matrix.data);
            seen[rank].assign(bytes, bytes + matrix.size_bytes());
            if (!holds(reducer.gradient(3), exact(3))) return std::string("the f64 gradient is not exact");
            if (rank == 0) {
                for (std::size_t i = 0; i < count; ++i) sum[i] += values[i] / static_cast<float>(steps);
                if (step == 0) result.first = distance(values, reinterpret_cast<const float*>(expected.data()), count);
            }
            return std::string();
        });
    if (seen[1] != seen[0] || seen[2] != seen[0]) result.wrong += "the ranks have different gradients";
    result.mean = distance(sum.data(), reinterpret_cast<const float*>(expected.data()), count);
    return result;
}

/// What one rank gives to the collectives of gradients of f32 in the last of three steps.
std::size_t bytes_per_step(WireFormat wire) {
    ThreadGroup group(world);
    const auto wrong =
        train(group, over(wire), 3, [&](const GradientReducer&, int step, const Communicator& communicator) {
            auto own = communicator.rank();
            if (own == 0 && step == 1) group.clear_history();
            return std::string();
        });
    if (!wrong.empty()) return 0;
    std::size_t bytes = 0;
    for (const auto& operation : group.history()) {
        const bool control = operation.kind == OperationKind::all_reduce && operation.type == DataType::u8;
        if (!control && operation.type != DataType::f64) bytes += runtime::input_bytes(operation, world);
    }
    return bytes;
}

/// The gradients after some steps of twelve matrices, on a network that stalls again and again or does not.
std::vector<std::vector<std::byte>> through(bool stalling, WireFormat wire) {
    ThreadGroup group(2);
    auto options = over(wire);
    options.bucket_cap_mb = 0.01;
    std::atomic<bool> over = false;
    std::thread network([&] {
        while (stalling && !over) {
            group.hold();
            for (int i = 0; i < 20; ++i) std::this_thread::yield();
            group.let_go();
            std::this_thread::yield();
        }
    });
    std::vector<std::vector<std::byte>> seen;
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        auto matrices = f32_parameters(std::vector<std::int64_t>(12, 64));
        for (auto& each : matrices) each.shape = {64, 64};
        const OwnedParameters parameters(matrices, 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        for (std::uint64_t step = 0; step < 5; ++step) {
            (void)reducer->begin_step();
            for (int i = 11; i >= 0; --i) {
                const auto seed = seed_of(step, communicator.rank(), static_cast<std::size_t>(i));
                write(reducer->gradient(i), made_up(DataType::f32, 4096, seed));
                if (auto marked = reducer->mark_ready(i); !marked) return complaint(marked);
            }
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
        }
        for (int i = 0; i < 12 && communicator.rank() == 0; ++i) {
            const auto* const bytes = static_cast<const std::byte*>(reducer->gradient(i).data);
            seen.emplace_back(bytes, bytes + reducer->gradient(i).size_bytes());
        }
        return {};
    });
    over = true;
    network.join();
    CHECK(wrong == "");
    return seen;
}

}  // namespace

TEST_CASE("16-bit wires: each rank's gradient is rounded once, the sum is not, the average once") {
    for (const auto& [wire, type] :
         {std::pair(WireFormat::bf16, DataType::bf16), std::pair(WireFormat::f16, DataType::f16)}) {
        ThreadGroup group(world);
        const auto wrong = train(group, over(wire), 2, [&](const GradientReducer& reducer, int, const Communicator&) {
            for (const std::size_t i : {0, 1, 2}) {
                const Buffer gradient = reducer.gradient(static_cast<int>(i));
                std::vector<std::vector<std::byte>> arrays;
                for (int rank = 0; rank < world; ++rank) {
                    const auto values = gradient_of(model()[i], gradient.count, rank, i);
                    arrays.emplace_back(gradient.count * 2);
                    runtime::convert({values.data(), gradient.count, DataType::f32},
                                     {.data = arrays.back().data(), .count = gradient.count, .type = type});
                }
                const auto halves = average(type, arrays, {1, 2, 3});
                std::vector<std::byte> expected(gradient.size_bytes());
                runtime::convert({halves.data(), gradient.count, type},
                                 {.data = expected.data(), .count = gradient.count, .type = DataType::f32});
                if (!holds(gradient, expected)) return cat("parameter ", i);
            }
            return holds(reducer.gradient(3), exact(3)) ? std::string() : std::string("the f64 gradient is not exact");
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("bytes on the wire: 16 bits are a half, int8 about a quarter each way, PowerSGD less than a tenth") {
    const double whole = static_cast<double>(bytes_per_step(WireFormat::same));
    CHECK(whole > 0);
    CHECK(static_cast<double>(bytes_per_step(WireFormat::bf16)) == whole / 2);
    CHECK(static_cast<double>(bytes_per_step(WireFormat::f16)) == whole / 2);
    // The first leg sends a piece to each rank, the second one piece: (1 + 1 / world) quarters, and the scales.
    const double legs = (1 + 1.0 / world) / 4;
    CHECK(static_cast<double>(bytes_per_step(WireFormat::int8)) < 1.05 * legs * whole);
    CHECK(static_cast<double>(bytes_per_step(WireFormat::int8)) > legs * whole);
    CHECK(static_cast<double>(bytes_per_step(WireFormat::power)) < whole / 10);
}

TEST_CASE("int8: one step is within a percent, and what it loses comes with the next ones") {
    const auto result = quality(WireFormat::int8, 20);
    CHECK(result.wrong == "");
    CHECK(result.first < 0.01);
    CHECK(result.first > 1e-4);
    CHECK(result.mean < result.first / 8);
}

TEST_CASE("wires with two legs: what comes of them does not depend on when the network lets things through") {
    for (const auto wire : {WireFormat::int8, WireFormat::power}) {
        INFO("wire " << static_cast<int>(wire));
        const auto steady = through(false, wire);
        CHECK(steady.size() == 12);
        CHECK(through(true, wire) == steady);
    }
}

TEST_CASE("PowerSGD: what a step loses comes with the next ones") {
    const auto result = quality(WireFormat::power, test::effort(300, 20));
    CHECK(result.wrong == "");
    CHECK(result.first > 0.5);  // a matrix without structure: two columns say little of it
    if (!test::under_thread_sanitizer) CHECK(result.mean < 0.25);
}

TEST_CASE("PowerSGD: vectors beside matrices are exact, and steps before the first compressed one are") {
    ThreadGroup group(world);
    auto options = over(WireFormat::power);
    options.power_start_step = 2;
    const auto wrong = train(group, options, 4, [&](const GradientReducer& reducer, int step, const Communicator&) {
        for (const int i : {1, 2, 3}) {
            if (!holds(reducer.gradient(i), exact(static_cast<std::size_t>(i)))) return cat("parameter ", i);
        }
        const bool same = holds(reducer.gradient(0), exact(0));
        return same == (step < 2) ? std::string() : std::string("the matrix is not as it should be");
    });
    CHECK(wrong == "");
}

TEST_CASE("PowerSGD: a matrix of as many independent columns as are sent comes through whole, one of more does not") {
    for (const int columns : {1, 2, 3}) {
        ThreadGroup group(2);
        auto options = over(WireFormat::power);
        options.power_rank = columns;
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            auto shaped = f32_parameters({64 * 64});
            shaped[0].shape = {64, 64};
            const OwnedParameters parameters(shaped, 0);
            auto reducer = GradientReducer::make(communicator, parameters.list(), options);
            if (!reducer) return complaint(reducer);
            (void)reducer->begin_step();
            auto* const values = static_cast<float*>(reducer->gradient(0).data);
            std::vector<float> given(64 * 64);
            for (std::size_t i = 0; i < given.size(); ++i) {
                const std::size_t row = i / 64, column = i % 64;  // three rows again and again, each other columns
                given[i] = column % 3 == row % 3 ? 1.0f + static_cast<float>(column) / 64 : 0.0f;
            }
            std::copy(given.begin(), given.end(), values);
            (void)reducer->mark_ready(0);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            const bool whole = distance(values, given.data(), given.size()) < 1e-4;
            return whole == (columns == 3) ? std::string() : cat(columns, columns == 3 ? " lose it" : " are enough");
        });
        CHECK(wrong == "");
    }
}
