// What collectives over shared memory compute: every kind, type and world against one thread's result.
#include <cstring>

#include "rendezvous/base/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/integration/runtime/uneven_values.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/cpu/shared_layout.h"

namespace muster {

using namespace runtime;
using test::Findings;
using test::run_as_threads;

namespace {

constexpr DataType types[] = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16,
                              DataType::i32, DataType::i64, DataType::u8};

/// Around the edges of a vector, of the copying paths (1 KiB, 16 KiB), and of the windows: one, and beyond two.
std::vector<std::size_t> counts_for(DataType type, bool large) {
    const std::size_t element = muster::size_of(type);
    const std::size_t window = window_bytes / element;
    if (large) return {window - 1, window, window + 1, 2 * window + 77};
    return {0, 1, 15, 16, 17, 1024 / element, 1024 / element + 1, 16384 / element, 16384 / element + 1};
}

/// Carries out an all_reduce or a reduce_scatter in memory that the ranks share, with the caller's elements.
Result<void> run_in_shared_memory(Communicator& world, const Operation& operation, std::size_t input_count) {
    const std::size_t element = muster::size_of(operation.type);
    auto memory = world.allocate(input_count * element);
    if (!memory) return memory.error();
    const auto* const input = static_cast<const std::byte*>(operation.input);
    auto* const output = static_cast<std::byte*>(operation.output);
    if (input_count > 0) std::memcpy(memory->data(), input, input_count * element);
    Operation inside = operation;
    inside.input = memory->data();
    const bool in_place = output >= input && output < input + input_count * element;
    if (in_place) inside.output = memory->data() + (output - input);
    auto done = world.run(inside);
    if (in_place) std::memcpy(output, inside.output, operation.count * element);
    return done;
}

/// Each case in memory of the caller's own; those that reduce also in memory that the ranks share.
void run_cases(int size, const std::vector<test::CollectiveCase>& cases) {
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        const auto own = [&](const Operation& operation) { return world.run(operation); };
        const auto shared = [&](const Operation& operation) {
            const bool scatters = operation.kind == OperationKind::reduce_scatter;
            return run_in_shared_memory(world, operation, operation.count * (scatters ? terms.size : 1u));
        };
        for (const auto& one : cases) {
            auto fault = test::fault_in(one, terms.rank, own);
            const auto kind = one.operation.kind;
            if (fault.empty() && (kind == OperationKind::all_reduce || kind == OperationKind::reduce_scatter))
                fault = test::fault_in(one, terms.rank, shared);
            findings.expect(fault.empty(), fault);
            if (!fault.empty()) return;
        }
        findings.expect(world.run(barrier()), "the last barrier");
    });
    INFO("world " << size);
    REQUIRE(findings.text() == "");
}

}  // namespace

TEST_CASE("every collective over shared memory equals the serial result, for each world, type and size") {
    for (int size = 1; size <= 8; ++size) {
        std::vector<test::CollectiveCase> cases;
        for (const auto type : types) {
            for (const auto count : counts_for(type, false))
                for (auto& one : test::collective_cases(size, type, count, 3)) cases.push_back(std::move(one));
        }
        run_cases(size, cases);
    }
}

TEST_CASE("collectives through several windows equal the serial result") {
    // One reduction at each: which one makes no difference to the windows.
    constexpr ReduceOp sum[] = {ReduceOp::sum}, average[] = {ReduceOp::avg};
    std::uint32_t seed = 5;
    for (int size = 2; size <= 8; ++size) {
        for (const auto type : types) {
            const auto counts = counts_for(type, true);
            for (std::size_t i = 0; i < counts.size(); ++i) {
                // Every edge with two ranks; the more ranks, the fewer edges.
                if (size == 3 && i % 2 == 0) continue;
                if (size > 3 && i != 2) continue;
                const bool averages = seed % 2 == 0 && is_floating(type);
                run_cases(size, test::collective_cases(size, type, counts[i], seed++, averages ? average : sum));
            }
        }
    }
}

TEST_CASE("messages of every type arrive as they were sent, whatever their size") {
    Findings findings;
    run_as_threads(3, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        for (const auto type : types) {
            for (const std::size_t count : {0u, 1u, 1'000u, 300'001u}) {
                const auto fault = test::fault_in_messages(terms.size, terms.rank, type, count,
                                                           [&](const Operation& one) { return world.run(one); });
                findings.expect(fault.empty(), fault);
            }
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("100 runs of an all_reduce have the same bits, whatever memory it is in") {
    Findings findings;
    run_as_threads(3, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        const auto input = test::uneven_values(terms.rank, 50'003);
        auto memory = world.allocate(input.size() * sizeof(float));
        findings.expect(memory.has_value(), "memory");
        if (!memory) return;
        const std::span shared(reinterpret_cast<float*>(memory->data()), input.size());
        std::vector<float> first;
        for (int run = 0; run < 100; ++run) {
            auto own = input;
            std::copy(input.begin(), input.end(), shared.begin());
            const std::span used = run % 2 == 0 ? std::span(own) : shared;
            findings.expect(world.run(all_reduce(buffer(used), ReduceOp::avg)), "run");
            if (run == 0) first = own;
            if (!std::equal(used.begin(), used.end(), first.begin()))
                return findings.expect(false, cat("run ", run, " differs"));
        }
    });
    CHECK(findings.text() == "");
}

}  // namespace muster
