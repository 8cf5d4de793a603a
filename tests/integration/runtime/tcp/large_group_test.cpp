// Groups of more ranks than a whole mesh has, ranks as threads: what collectives and messages over partners compute.
#include <atomic>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/own_process.h"
#include "tests/support/ranks.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/mesh/tcp_partners.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::Findings;
using test::join_over_tcp;
using test::run_as_threads;
using test::within;

namespace {

constexpr int least = whole_mesh_ranks_max + 1;

void require_right(int size, const std::vector<test::CollectiveCase>& cases, TcpAlgorithm algorithm = {},
                   const WireSecurity& security = {}) {
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& given) {
        GroupTerms terms = given;
        terms.security = security;
        const auto transport = join_over_tcp(terms, "127.0.0.1", 0, algorithm);
        for (const auto& one : cases) {
            const auto fault = test::fault_in(
                one, terms.rank, [&](const Operation& operation) { return carry_out(*transport, operation); });
            findings.expect(fault.empty(), fault);
            if (!fault.empty()) return;
        }
        findings.expect(carry_out(*transport, barrier()), "the last barrier");
    });
    INFO("world " << size);
    REQUIRE(findings.text() == "");
}

std::vector<test::CollectiveCase> cases_of(int size, DataType type, const std::vector<std::size_t>& counts,
                                           std::span<const ReduceOp> reductions = test::all_reductions) {
    std::vector<test::CollectiveCase> cases;
    std::uint32_t seed = static_cast<std::uint32_t>(size);
    for (const auto count : counts)
        for (auto& one : test::collective_cases(size, type, count, ++seed, reductions)) cases.push_back(std::move(one));
    return cases;
}

std::vector<float> elements(int rank, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rank) + static_cast<float>(i % 1000);
    return values;
}

}  // namespace

TEST_CASE("partners are those at the distance of a power of two, and each has the other") {
    CHECK(partners_of(3, 5) == std::vector{0, 1, 2, 4});
    CHECK(partners_of(0, 40) == std::vector{1, 2, 4, 8, 16, 24, 32, 36, 38, 39});
    CHECK(partners_of(0, 64, {5, 1}) == std::vector{1, 2, 4, 5, 8, 16, 32, 48, 56, 60, 62, 63});
    CHECK(partners_of(77, 1024).size() == 19);
    CHECK(partners_of(77, 100'000).size() == 34);
    for (const int size : {33, 40, 63, 64, 100}) {
        for (int rank = 0; rank < size; ++rank) {
            for (const int one : partners_of(rank, size)) {
                const auto theirs = partners_of(one, size);
                CHECK(std::binary_search(theirs.begin(), theirs.end(), rank));
            }
        }
    }
}

TEST_CASE("every collective of a large group equals the serial result, around the limits of the algorithms") {
    for (const int size : {least, 40, 64}) {
        if (test::under_thread_sanitizer && size != least) continue;
        const std::size_t limit = gathered_reduce_bytes_max / static_cast<std::size_t>(size) / sizeof(float);
        // Which reduction it is makes no difference to who speaks with whom.
        const auto reductions =
            std::span(test::all_reductions).first(size == least ? std::size(test::all_reductions) : 2);
        require_right(
            size, cases_of(size, DataType::f32, {0, 1, 17, limit, limit + 1, test::effort<std::size_t>(40'001, 3'001)},
                           reductions));
    }
    for (const auto type : {DataType::f64, DataType::f16, DataType::bf16, DataType::i32, DataType::u8}) {
        if (!test::under_thread_sanitizer) require_right(least, cases_of(least, type, {1, 5'003}));
    }
}

TEST_CASE("a large group's all_reduce from rank to rank equals the serial result, in 16 bits too") {
    for (const auto type : {DataType::f32, DataType::bf16, DataType::i64}) {
        if (test::under_thread_sanitizer && type != DataType::bf16) continue;
        auto cases = cases_of(35, type, {1, test::effort<std::size_t>(70'001, 1'001)});
        std::erase_if(cases, [](const auto& one) {
            return one.operation.kind != OperationKind::all_reduce && one.operation.kind != OperationKind::reduce;
        });
        require_right(35, cases, TcpAlgorithm::ring);
    }
}

TEST_CASE("a large group's collectives are encrypted") {
    require_right(least, cases_of(least, DataType::f32, {17, 5'003}), {},
                  {.key = std::string(32, 'k'), .encrypts = true});
}

TEST_CASE("an exchange in several parts, and a broadcast from each rank to the next, move every element") {
    const std::size_t count = exchange_bytes_max / sizeof(float) + 4'321;
    Findings findings;
    run_as_threads(least, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        auto data = elements(terms.rank, count);
        findings.expect(carry_out(*world, all_reduce(buffer(std::span(data)), ReduceOp::sum)), "all_reduce");
        bool right = true;
        for (std::size_t i = 0; i < count; ++i)
            right =
                right && data[i] == static_cast<float>(least * (least - 1) / 2 + least * static_cast<int>(i % 1000));
        findings.expect(right, "sums");
        data = elements(terms.rank, count);
        findings.expect(carry_out(*world, broadcast(buffer(std::span(data)), 7)), "broadcast");
        findings.expect(data == elements(7, count), "what was broadcast");
        // Pieces of more than one part.
        const std::size_t piece = exchange_bytes_max / least / sizeof(float) + 99;
        std::vector<float> to(piece * least), from(piece * least);
        for (std::size_t i = 0; i < to.size(); ++i)
            to[i] = static_cast<float>(terms.rank * 1000) + static_cast<float>(i / piece);
        findings.expect(
            carry_out(*world, all_to_all({to.data(), to.size(), DataType::f32}, buffer(std::span(from)), least)),
            "all_to_all");
        for (std::size_t i = 0; i < from.size(); ++i)
            right = right && from[i] == static_cast<float>(i / piece * 1000) + static_cast<float>(terms.rank);
        findings.expect(right, "what was exchanged");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("an all_reduce of a large group has the same bits however the data is cut") {
    Findings findings;
    run_as_threads(least, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        std::vector<float> whole(50'003);
        std::uint32_t state = 12345u + static_cast<std::uint32_t>(terms.rank);
        for (auto& value : whole) {
            state = state * 1664525u + 1013904223u;
            value = static_cast<float>(state) / 1e9f - 2.1f;
        }
        auto pieces = whole;
        findings.expect(carry_out(*world, all_reduce(buffer(std::span(whole)), ReduceOp::avg)), "whole");
        for (std::size_t from = 0; from < pieces.size(); from += 377) {
            const std::span piece(pieces.data() + from, std::min<std::size_t>(377, pieces.size() - from));
            findings.expect(carry_out(*world, all_reduce(buffer(piece), ReduceOp::avg)), "piece");
        }
        findings.expect(pieces == whole, "the pieces differ");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("memory that one rank of a large group lacks is refused on every rank, which stay a group") {
    Findings findings;
    run_as_threads(least, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        findings.expect_error(world->allocate(std::size_t{1} << 60, within(60s)),
                              {"rank 0 (pid", "has too little memory"});
        findings.expect(world->allocate(1000, within(60s)), "memory");
        findings.expect(carry_out(*world, barrier()), "the group is gone");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("ranks of a large group that are no partners connect with their first message") {
    constexpr int size = 40;
    constexpr std::size_t count = 100'000;
    Findings findings;
    run_as_threads(size, [&](const GroupTerms& terms) {
        const auto world = join_over_tcp(terms);
        const auto mine = elements(terms.rank, count);
        for (const int distance : {3, 5, 1, 20, 3}) {
            const int to = (terms.rank + distance) % size;
            const int from = (terms.rank + size - distance) % size;
            std::thread sender([&] {
                findings.expect(carry_out(*world, send({mine.data(), count, DataType::f32}, to)), "send");
            });
            std::vector<float> theirs(count);
            findings.expect(carry_out(*world, receive(buffer(std::span(theirs)), from)), "receive");
            findings.expect(theirs == elements(from, count), "what was received");
            sender.join();
        }
        findings.expect(carry_out(*world, barrier()), "barrier");
    });
    CHECK(findings.text() == "");
}

}  // namespace muster
