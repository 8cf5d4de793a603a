// all_reduce from rank to rank, ranks as threads: the serial result, with the bits of the direct way.

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/integration/runtime/uneven_values.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/ranks.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::Findings;
using test::join_over_tcp;
using test::run_as_threads;
using test::uneven_values;

namespace {

std::vector<test::CollectiveCase> all_reduces(int size, DataType type, std::size_t count, std::uint32_t seed) {
    auto cases = test::collective_cases(size, type, count, seed);
    std::erase_if(cases, [](const auto& one) { return one.operation.kind != OperationKind::all_reduce; });
    return cases;
}

}  // namespace

TEST_CASE("an all_reduce from rank to rank equals the serial result, for each world, type and size") {
    constexpr DataType types[] = {DataType::f32, DataType::f64, DataType::bf16, DataType::i32,
                                  DataType::i64, DataType::u8,  DataType::i8};
    for (int size = 2; size <= test::effort(8, 3); ++size) {
        std::vector<test::CollectiveCase> cases;
        for (const auto type : types) {
            const std::size_t piece = piece_bytes_min / size_of(type);
            std::vector<std::size_t> counts{1, piece + 1};
            // Until the ring of pieces goes round: for two types, because the serial sums take most of the time.
            if (type == DataType::f32 || type == DataType::u8) counts.push_back((fold_ring_pieces + 2) * piece + 17);
            if (type == DataType::f32) counts.push_back(piece - 1);
            for (const std::size_t count : counts)
                for (auto& one : all_reduces(size, type, count, static_cast<std::uint32_t>(size)))
                    cases.push_back(std::move(one));
        }
        Findings findings;
        run_as_threads(size, [&](const GroupTerms& terms) {
            const auto transport = join_over_tcp(terms, "127.0.0.1", 1 + size % 3, TcpAlgorithm::ring);
            for (const auto& one : cases) {
                const auto fault = test::fault_in(
                    one, terms.rank, [&](const Operation& operation) { return carry_out(*transport, operation); });
                findings.expect(fault.empty(), fault);
                if (!fault.empty()) return;
            }
        });
        INFO("world " << size);
        REQUIRE(findings.text() == "");
    }
}

TEST_CASE("an all_reduce has the same bits from rank to rank and directly") {
    constexpr std::size_t count = 500'003;
    Findings findings;
    run_as_threads(4, [&](const GroupTerms& terms) {
        GroupTerms second = terms;
        second.id += "/direct";
        const auto ring = join_over_tcp(terms, "127.0.0.1", 2, TcpAlgorithm::ring);
        const auto direct = join_over_tcp(second, "127.0.0.1", 2, TcpAlgorithm::direct);
        for (const bool weighted : {false, true}) {
            auto one = uneven_values(terms.rank, count);
            auto other = one;
            const auto operation = [&](std::vector<float>& values) {
                return weighted ? all_reduce_weighted(buffer(std::span(values)), static_cast<float>(terms.rank) + 0.3f)
                                : all_reduce(buffer(std::span(values)), ReduceOp::avg);
            };
            findings.expect(carry_out(*ring, operation(one)), "ring");
            findings.expect(carry_out(*direct, operation(other)), "direct");
            findings.expect(one == other, cat("they differ, weighted: ", weighted));
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("100 runs of an all_reduce have the same bits, whichever way it goes") {
    for (const auto algorithm : {TcpAlgorithm::direct, TcpAlgorithm::ring}) {
        Findings findings;
        run_as_threads(3, [&](const GroupTerms& terms) {
            const auto transport = join_over_tcp(terms, "127.0.0.1", 2, algorithm);
            const auto input = uneven_values(terms.rank, 50'003);
            std::vector<float> first;
            for (int run = 0; run < 100; ++run) {
                auto values = input;
                findings.expect(carry_out(*transport, all_reduce(buffer(std::span(values)), ReduceOp::avg)), "run");
                if (run == 0) first = values;
                if (values != first) return findings.expect(false, cat("run ", run, " differs"));
            }
        });
        CHECK(findings.text() == "");
    }
}

TEST_CASE("ranks that disagree about the way are told so") {
    Findings findings;
    run_as_threads(2, [&](const GroupTerms& terms) {
        const auto transport =
            join_over_tcp(terms, "127.0.0.1", 1, terms.rank == 0 ? TcpAlgorithm::ring : TcpAlgorithm::direct);
        std::vector<float> values(100'000);
        const auto done = carry_out(*transport, all_reduce(buffer(std::span(values)), ReduceOp::sum));
        findings.expect(done.has_error() && done.error().code == Errc::invalid_argument, "an error");
        if (done.has_error())
            findings.expect(done.error().context.find("from rank to rank") != std::string::npos, done.error().context);
    });
    CHECK(findings.text() == "");
}

}  // namespace muster
