// What collectives over shared memory compute: every kind, type and world against one thread's result.
#include <algorithm>
#include <cstring>
#include <optional>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/integration/runtime/threads_wish.h"
#include "tests/integration/runtime/uneven_values.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/shared_memory/helper_threads.h"
#include "worker_runtime/shared_memory/shared_layout.h"

namespace muster {

using namespace runtime;
using test::Findings;
using test::run_as_threads;

namespace {

constexpr DataType two_types[] = {DataType::f32, DataType::bf16};
constexpr DataType types[] = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16,
                              DataType::i32, DataType::i64, DataType::u8};

/// Around the edges of a vector, of the copying paths (1 KiB, 16 KiB), and of the windows: one, and beyond two.
std::vector<std::size_t> counts_for(DataType type, bool large) {
    const std::size_t element = muster::size_of(type);
    const std::size_t window = window_bytes / element;
    if (large) return {window - 1, window, window + 1, 2 * window + 77};
    return {0, 1, 15, 16, 17, 1024 / element, 1024 / element + 1, 16384 / element, 16384 / element + 1};
}

/// Carries out an operation in memory that the ranks share, with the caller's elements, and in place where it is so.
/// The memory is taken anew only for a larger operation: before each allocation the limits of the host are read.
Result<void> run_in_shared_memory(Communicator& world, std::optional<Memory>& memory, const Operation& operation) {
    const auto ranks = static_cast<std::size_t>(world.size());
    const std::size_t piece = operation.count * muster::size_of(operation.type);
    const auto kind = operation.kind;
    if (kind == OperationKind::all_to_all_uneven) return world.run(operation);  // it is copied from everywhere
    const bool has_pieces = kind == OperationKind::all_to_all;
    const bool divides = kind == OperationKind::reduce_scatter || kind == OperationKind::scatter;
    const bool collects = kind == OperationKind::all_gather || kind == OperationKind::gather;
    const std::size_t input_bytes = piece * (has_pieces || divides ? ranks : 1);
    const std::size_t output_bytes = piece * (has_pieces || collects ? ranks : 1);
    if (!memory || memory->size_bytes() < input_bytes + output_bytes) {
        auto allocated = world.allocate(input_bytes + output_bytes);
        if (!allocated) return allocated.error();
        memory = *std::move(allocated);
    }
    const auto* const input = static_cast<const std::byte*>(operation.input);
    auto* const output = static_cast<std::byte*>(operation.output);
    Operation inside = operation;
    inside.input = memory->data();
    inside.output = memory->data() + input_bytes;
    const bool reads = piece > 0 && input != nullptr, writes = piece > 0 && output != nullptr;
    if (reads && writes && output >= input && output < input + input_bytes) {
        inside.output = memory->data() + (output - input);
    } else if (reads && writes && input >= output && input < output + output_bytes) {
        inside.output = memory->data();
        inside.input = memory->data() + (input - output);
    }
    if (reads) std::memcpy(const_cast<void*>(inside.input), input, input_bytes);
    auto done = world.run(inside);
    if (writes) std::memcpy(output, inside.output, output_bytes);
    return done;
}

/// Each case in memory of the caller's own, and in memory that the ranks share.
void run_cases(int size, const std::vector<test::CollectiveCase>& cases) {
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        const auto own = [&](const Operation& operation) { return world.run(operation); };
        std::optional<Memory> memory;
        const auto shared = [&](const Operation& operation) { return run_in_shared_memory(world, memory, operation); };
        for (const auto& one : cases) {
            auto fault = test::fault_in(one, terms.rank, own);
            if (fault.empty()) fault = test::fault_in(one, terms.rank, shared);
            findings.expect(fault.empty(), fault);
            if (!fault.empty()) return;
        }
        findings.expect(world.run(barrier()), "the last barrier");
    });
    INFO("world " << size);
    REQUIRE(findings.text() == "");
}

}  // namespace

TEST_CASE("every collective over shared memory equals the serial result, for each world and size") {
    for (int size = 1; size <= 8; ++size) {
        std::vector<test::CollectiveCase> cases;
        // All of them in small worlds: the serial results take most of the time.
        const auto used = size <= 4 ? std::span<const DataType>(test::all_types) : two_types;
        for (const auto type : used) {
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
        for (const auto type : size <= 3 ? std::span<const DataType>(types) : two_types) {
            const auto counts = counts_for(type, true);
            for (std::size_t i = 0; i < counts.size(); ++i) {
                // Every edge with two ranks; the more ranks, the fewer edges and types.
                if (size == 3 && i % 2 == 0) continue;
                if (size > 3 && i != 2) continue;
                const bool averages = seed % 2 == 0 && is_floating(type);
                run_cases(size, test::collective_cases(size, type, counts[i], seed++, averages ? average : sum));
            }
        }
    }
}

TEST_CASE("large collectives equal the serial result with every number of threads a rank") {
    constexpr ReduceOp sum[] = {ReduceOp::sum}, average[] = {ReduceOp::avg};
    for (const auto type : test::all_types) {
        // A rank's half in place is enough for helpers, and so is a window of it.
        const std::size_t count = HelperThreads::touched_bytes_min / muster::size_of(type) + 77;
        const auto cases = test::collective_cases(2, type, count, 4, is_floating(type) ? average : sum);
        for (int threads = 1; threads <= 4; ++threads) {
            // Every number with f32; the other types take turns with those that have helpers.
            if (type != DataType::f32 && threads != 2 + static_cast<int>(type) % 3) continue;
            const test::ThreadsWish wish(std::to_string(threads));
            INFO(threads << " threads, " << name(type));
            run_cases(2, cases);
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

TEST_CASE("pieces come right where some ranks' lie in shared memory and others' in their own, now and later") {
    constexpr int size = 3;
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        for (const std::size_t count : {std::size_t{3}, std::size_t{5'000}, window_bytes / 4 + 5}) {
            std::vector<float> whole(size * count), found(size * count);
            const auto element = [&](int rank, std::size_t i) { return static_cast<float>(1000 * rank + i % 997); };
            for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = element(terms.rank, i);
            const auto from = static_cast<std::size_t>(terms.rank) * count;
            for (int mixture = 0; mixture < 1 << size; ++mixture) {
                const bool shared = (mixture >> terms.rank & 1) != 0;
                const auto carry_out = [&](const Operation& operation) {
                    // All take the same memory, so that allocate() is called alike.
                    auto memory = world.allocate(2 * whole.size() * sizeof(float)).value();
                    Operation inside = operation;
                    if (shared) {
                        const bool gathers = operation.kind == OperationKind::all_gather;
                        inside.input = memory.data() + (gathers ? from * sizeof(float) : 0);
                        inside.output = memory.data() + (gathers ? 0 : whole.size() * sizeof(float));
                        std::memcpy(const_cast<void*>(inside.input), operation.input,
                                    (gathers ? count : whole.size()) * sizeof(float));
                    }
                    findings.expect(world.run(inside), "pieces");
                    if (shared) std::memcpy(operation.output, inside.output, found.size() * sizeof(float));
                };
                const auto output = buffer(std::span<float>(found));
                carry_out(all_to_all(buffer(std::span<float>(whole)), output, size));
                for (std::size_t i = 0; i < found.size(); i += 1 + count / 50) {
                    const bool right = found[i] == element(static_cast<int>(i / count), from + i % count);
                    findings.expect(right, cat("all_to_all of ", count, ", mixture ", mixture));
                }
                carry_out(all_gather(ConstBuffer(whole.data() + from, count, DataType::f32), output));
                for (std::size_t i = 0; i < found.size(); i += 1 + count / 50) {
                    const bool right = found[i] == element(static_cast<int>(i / count), i);
                    findings.expect(right, cat("all_gather of ", count, ", mixture ", mixture));
                }
            }
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("who has its pieces may write the next ones, although others still read where they lay") {
    Findings findings;
    constexpr std::size_t count = 100'000;
    run_as_threads(2, [&](const GroupTerms& terms) {
        auto world = test::join_shared_group(terms);
        auto memory = world.allocate(4 * count * sizeof(float)).value();
        const std::span whole(reinterpret_cast<float*>(memory.data()), 2 * count);
        const std::span found(whole.data() + 2 * count, 2 * count);
        const auto own = whole.subspan(static_cast<std::size_t>(terms.rank) * count, count);
        for (int run = 0; run < 200; ++run) {
            std::fill(whole.begin(), whole.end(), static_cast<float>(2 * run + terms.rank));
            findings.expect(world.run(all_to_all(buffer(whole), buffer(found), 2)), "all_to_all");
            std::fill(whole.begin(), whole.end(), -1.0f - static_cast<float>(terms.rank));
            findings.expect(world.run(all_gather(buffer(own), buffer(whole))), "all_gather");
            std::fill(own.begin(), own.end(), 0.0f);
            const auto other = static_cast<std::size_t>(1 - terms.rank);
            const auto is_all = [](std::span<const float> values, float value) {
                return std::all_of(values.begin(), values.end(), [=](float each) { return each == value; });
            };
            const auto sent = static_cast<float>(2 * run + 1 - terms.rank);
            findings.expect(is_all(found.subspan(other * count, count), sent), cat("all_to_all ", run));
            findings.expect(is_all(whole.subspan(other * count, count), -1.0f - static_cast<float>(other)),
                            cat("all_gather ", run));
        }
    });
    CHECK(findings.text() == "");
}

}  // namespace muster
