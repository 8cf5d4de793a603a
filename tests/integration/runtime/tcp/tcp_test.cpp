// TCP end to end, ranks as threads: what collectives and messages compute.
#include <atomic>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/ranks.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::effort;
using test::Findings;
using test::join_over_tcp;
using test::run_as_threads;
using test::under_thread_sanitizer;
using test::within;

namespace {

constexpr DataType types[] = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16,
                              DataType::i32, DataType::i64, DataType::u8,  DataType::i16};

/// Around the edges of a vector, of the small path, and of what makes a ring of pieces go round; the large ones for f32
/// alone, and beside it one of each way for the other types.
std::vector<std::size_t> counts_for(int size, DataType type) {
    const std::size_t small = small_reduce_bytes_max(size) / size_of(type);
    const std::size_t ring = static_cast<std::size_t>(size) * (fold_ring_pieces + 2) * piece_bytes_min / size_of(type);
    if (under_thread_sanitizer) return {0, 17, small, small + 1};
    if (type == DataType::f32) return {0, 1, 15, 16, 17, 4095, small - 1, small, small + 1, ring + 3};
    return {0, 1, 15, 16, 17, 4095, small + 1};
}

void run_cases(int size, const std::vector<test::CollectiveCase>& cases, const std::string& address, int stripes,
               const WireSecurity& security = {}) {
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        terms.security = security;
        const auto transport = join_over_tcp(terms, address, stripes);
        for (const auto& one : cases) {
            const auto fault = test::fault_in(
                one, terms.rank, [&](const Operation& operation) { return carry_out(*transport, operation); });
            findings.expect(fault.empty(), fault);
            if (!fault.empty()) return;
        }
        findings.expect(carry_out(*transport, barrier()), "the last barrier");
    });
    INFO("world " << size << " at " << address << ", " << stripes << " connections");
    REQUIRE(findings.text() == "");
}

std::vector<float> elements(int rank, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rank) + static_cast<float>(i % 1000);
    return values;
}

}  // namespace

TEST_CASE("every collective over TCP equals the serial result, for each world and size, small ones for each type") {
    for (int size = 2; size <= effort(8, 3); ++size) {
        for (const auto type : types) {
            if (under_thread_sanitizer && type != DataType::f32) continue;
            if (size > 4 && type != DataType::f32 && type != DataType::bf16) continue;
            std::vector<test::CollectiveCase> cases;
            std::uint32_t seed = static_cast<std::uint32_t>(size);
            for (const auto count : counts_for(size, type)) {
                for (auto& one : test::collective_cases(size, type, count, ++seed)) cases.push_back(std::move(one));
            }
            run_cases(size, cases, "127.0.0.1", 0);
        }
    }
}

TEST_CASE("encrypted collectives equal the serial result, small and large, over one and several connections") {
    for (const auto& [size, stripes] : {std::pair{2, 1}, {2, 2}, {3, 2}}) {
        std::vector<test::CollectiveCase> cases;
        for (const auto count : counts_for(size, DataType::f32))
            for (auto& one : test::collective_cases(size, DataType::f32, count, 9)) cases.push_back(std::move(one));
        run_cases(size, cases, "127.0.0.1", stripes, {.key = std::string(32, 'k'), .encrypts = true});
    }
}

TEST_CASE("large collectives, whose pieces are as large as they get, over one and several connections") {
    for (const auto& [size, stripes] : {std::pair{2, 1}, {2, 2}, {3, 3}}) {
        const std::size_t slice = effort<std::size_t>(8, 1) * piece_bytes_max / sizeof(float);
        const std::size_t count = static_cast<std::size_t>(size) * slice + 12'345;
        auto cases = test::collective_cases(size, DataType::f32, count, 1);
        std::erase_if(cases, [](const auto& one) {
            const bool reduces =
                one.operation.kind == OperationKind::all_reduce || one.operation.kind == OperationKind::reduce_scatter;
            return reduces && one.operation.reduce != ReduceOp::sum;
        });
        run_cases(size, cases, "127.0.0.1", stripes);
    }
}

TEST_CASE("ranks meet over IPv6") {
    run_cases(3, test::collective_cases(3, DataType::bf16, 70'001, 1), "::1", 0);
}

TEST_CASE("an all_reduce has the same bits however the data is cut") {
    for (const int size : {2, 3, 4}) {
        Findings findings;
        run_as_threads(size, [&](const GroupTerms& terms) {
            const auto world = join_over_tcp(terms);
            std::vector<float> whole(100'003);
            std::uint32_t state = 12345u + static_cast<std::uint32_t>(terms.rank);
            for (auto& value : whole) {
                state = state * 1664525u + 1013904223u;
                value = static_cast<float>(state) / 1e9f - 2.1f;
            }
            auto pieces = whole;
            findings.expect(carry_out(*world, all_reduce(buffer(std::span(whole)), ReduceOp::avg)), "whole");
            for (std::size_t from = 0; from < pieces.size(); from += 777) {
                const std::span piece(pieces.data() + from, std::min<std::size_t>(777, pieces.size() - from));
                findings.expect(carry_out(*world, all_reduce(buffer(piece), ReduceOp::avg)), "piece");
            }
            findings.expect(pieces == whole, "the pieces differ");
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("messages of all pairs, in both directions, run beside each other and beside collectives") {
    constexpr int size = 4;
    constexpr std::size_t count = 1'500'000;  // more than the kernel buffers: no direction may wait for another
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        const auto mine = elements(terms.rank, count);
        std::vector<std::thread> threads;
        for (int peer = 0; peer < size; ++peer) {
            if (peer == terms.rank) continue;
            threads.emplace_back([&, peer] {
                findings.expect(carry_out(*world, send({mine.data(), count, DataType::f32}, peer)), "send");
                findings.expect(carry_out(*world, send({mine.data(), 3, DataType::f32}, peer)), "a second send");
            });
            threads.emplace_back([&, peer] {
                std::vector<float> theirs(count), few(3);
                findings.expect(carry_out(*world, receive(buffer(std::span(theirs)), peer)), "receive");
                findings.expect(carry_out(*world, receive(buffer(std::span(few)), peer)), "a second receive");
                findings.expect(theirs == elements(peer, count) && few == elements(peer, 3), "what was received");
            });
        }
        for (int i = 0; i < 20; ++i) {
            std::vector<float> data(50'000, static_cast<float>(terms.rank));
            findings.expect(carry_out(*world, all_reduce(buffer(std::span(data)), ReduceOp::sum)), "all_reduce");
            findings.expect(data.front() == 6 && data.back() == 6, "sum");
        }
        for (auto& thread : threads) thread.join();
    });
    CHECK(findings.text() == "");
}

TEST_CASE("messages of every type arrive as they were sent, whatever their size") {
    Findings findings;
    run_as_threads(3, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        for (const auto type : types) {
            for (const std::size_t count : {0u, 1u, 1'000u, 300'001u}) {
                const auto fault = test::fault_in_messages(
                    terms.size, terms.rank, type, count, [&](const Operation& one) { return carry_out(*world, one); });
                findings.expect(fault.empty(), fault);
            }
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("memory is zeroed and ours alone, and too much of it is refused on every rank") {
    Findings findings;
    run_as_threads(3, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        const auto memory = world->allocate(100'000, within(60s));
        findings.expect(memory, "memory");
        findings.expect(memory->size_bytes() == 100'000, "size");
        bool zero = true;
        for (std::size_t i = 0; i < memory->size_bytes(); ++i) zero = zero && memory->data()[i] == std::byte{0};
        findings.expect(zero, "not zeroed");
        findings.expect_error(world->allocate(std::size_t{1} << 60, within(60s)),
                              {"rank 0 (pid", "has too little memory"});
        findings.expect(carry_out(*world, barrier()), "the group is gone");
    });
    run_as_threads(3, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        findings.expect_error(world->allocate(terms.rank == 2 ? 10u : 20u, within(60s)),
                              {"runs allocate 20 bytes", "rank 2 (pid", "runs allocate 10 bytes"});
    });
    CHECK(findings.text() == "");
}

}  // namespace muster
