// Several nodes with several ranks, all on this host: ranks of one node share memory, nodes speak TCP.
#include <thread>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/findings.h"
#include "tests/integration/runtime/hierarchical/node_ranks.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/integration/runtime/uneven_values.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/support/ranks.h"
#include "worker_runtime/context/make_transport.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::Findings;
using test::join_over_nodes;
using test::join_over_tcp;
using test::run_as_threads;
using test::uneven_values;
using test::world_of;

namespace {

constexpr DataType types[] = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16,
                              DataType::i32, DataType::i64, DataType::u8,  DataType::i16};

/// Each of these has its serial result on every rank.
void require_right(const std::vector<int>& nodes, const std::vector<test::CollectiveCase>& cases) {
    Findings findings;
    run_as_threads(world_of(nodes), [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, nodes);
        for (const auto& one : cases) {
            const auto fault = test::fault_in(
                one, terms.rank, [&](const Operation& operation) { return carry_out(*transport, operation); });
            findings.expect(fault.empty(), fault);
            if (!fault.empty()) return;
        }
    });
    INFO(nodes.size() << " nodes, " << world_of(nodes) << " ranks");
    REQUIRE(findings.text() == "");
}

}  // namespace

TEST_CASE("every collective over nodes equals the serial result, for each type, and sizes around the limits") {
    // 16-bit types go by nodes where those have four ranks on average.
    for (const auto& nodes : {std::vector{2, 2}, {1, 3}, {3, 2, 1}, {4, 4}, {1, 7}}) {
        const int size = world_of(nodes);
        std::vector<test::CollectiveCase> cases;
        for (const auto type : types) {
            if (test::under_thread_sanitizer && type != DataType::f32) continue;
            if (size == 8 && type != DataType::f16 && type != DataType::bf16) continue;
            const std::size_t limit = by_nodes_bytes_min / muster::size_of(type);
            std::vector<std::size_t> counts{limit, 3 * limit + 17};
            if (size < 8 && (type == DataType::f32 || type == DataType::bf16))
                counts.insert(counts.end(), {1, limit - 1, limit + 1});
            for (const auto count : counts)
                for (auto& one : test::collective_cases(size, type, count, 7)) cases.push_back(std::move(one));
        }
        require_right(nodes, cases);
    }
}

TEST_CASE("reduce_scatter and reduce among nodes of many ranks equal the serial result") {
    for (const auto& nodes : {std::vector{5, 5}, {4, 6}}) {
        const int size = world_of(nodes);
        std::vector<test::CollectiveCase> cases;
        for (const auto type : {DataType::f32, DataType::f64, DataType::bf16})
            for (const std::uint32_t seed : {11u, 12u})  // not in place, and in place
                for (const std::size_t count : {3'001u, 20'000u})
                    for (auto& one : test::collective_cases(size, type, count, seed))
                        if (one.operation.kind == OperationKind::reduce_scatter ||
                            one.operation.kind == OperationKind::reduce)
                            cases.push_back(std::move(one));
        REQUIRE_FALSE(cases.empty());
        require_right(nodes, cases);
    }
}

TEST_CASE("a reduce_scatter of more than one part leaves its input as it was, and ranks' pieces lie across parts") {
    const std::vector nodes{5, 5};
    constexpr std::size_t count = by_nodes_chunk_bytes / sizeof(float) / 10 + 1001;
    std::vector<float> input(count * 10);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 251);
    const auto before = input;
    Findings findings;
    run_as_threads(world_of(nodes), [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, nodes);
        std::vector<float> piece(count);
        const ConstBuffer all(input.data(), input.size(), DataType::f32);
        findings.expect(carry_out(*transport, reduce_scatter(all, buffer(std::span(piece)), ReduceOp::sum)), "done");
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i)
            wrong += piece[i] != 10 * before[static_cast<std::size_t>(terms.rank) * count + i] ? 1 : 0;
        findings.expect(wrong == 0, cat(wrong, " elements of rank ", terms.rank));
    });
    CHECK(findings.text() == "");
    CHECK(input == before);
}

TEST_CASE("an all_reduce has the bits of TCP alone, in shared memory, in the caller's own, and in both at once") {
    constexpr std::size_t count = 300'007;
    const std::vector nodes{2, 3};
    Findings findings;
    run_as_threads(world_of(nodes), [&](const GroupTerms& terms) {
        GroupTerms second = terms;
        second.id += "/tcp";
        const auto transport = join_over_nodes(terms, nodes);
        const auto tcp = join_over_tcp(second);
        auto expected = uneven_values(terms.rank, count);
        const float weight = static_cast<float>(terms.rank) + 0.3f;
        findings.expect(carry_out(*tcp, all_reduce_weighted(buffer(std::span(expected)), weight)), "tcp");
        auto memory = transport->allocate(count * sizeof(float), test::within(60s));
        findings.expect(memory.has_value(), "memory");
        if (!memory) return;
        const std::span shared(reinterpret_cast<float*>(memory->data()), count);
        // Which node uses which: the nodes agree whatever they have.
        for (const int own_on : {-1, 0, 1, 2}) {
            auto own = uneven_values(terms.rank, count);
            std::copy(own.begin(), own.end(), shared.begin());
            const bool uses_own = own_on == 2 || test::node_of(nodes, terms.rank) == own_on;
            const std::span used = uses_own ? std::span(own) : shared;
            findings.expect(carry_out(*transport, all_reduce_weighted(buffer(used), weight)), "by nodes");
            findings.expect(std::equal(used.begin(), used.end(), expected.begin()), cat("it differs: ", own_on));
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("an all_reduce of more than one part") {
    constexpr std::size_t count = by_nodes_chunk_bytes / sizeof(std::int32_t) + 5'001;
    Findings findings;
    run_as_threads(3, [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, {2, 1});
        std::vector<std::int32_t> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int32_t>(i) * (terms.rank + 1);
        findings.expect(carry_out(*transport, all_reduce(buffer(std::span(values)), ReduceOp::sum)), "reduced");
        for (std::size_t i = 0; i < count; ++i) {
            if (values[i] == static_cast<std::int32_t>(i) * 6) continue;
            findings.expect(false, cat("element ", i, " is ", values[i]));
            return;
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("messages go to ranks of the same node and of others") {
    const std::vector nodes{2, 2};
    Findings findings;
    run_as_threads(4, [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, nodes);
        for (int distance = 1; distance < 4; ++distance) {
            std::vector<std::int32_t> out(50'000, terms.rank), in(50'000, -1);
            const int to = (terms.rank + distance) % 4, from = (terms.rank + 4 - distance) % 4;
            std::thread sender(
                [&] { findings.expect(carry_out(*transport, send(buffer(std::span(out)), to)), "sent"); });
            findings.expect(carry_out(*transport, receive(buffer(std::span(in)), from)), "received");
            sender.join();
            findings.expect(in == std::vector<std::int32_t>(50'000, from), cat("from ", from));
        }
        for (const auto type : types) {
            const auto fault = test::fault_in_messages(4, terms.rank, type, 50'001, [&](const Operation& operation) {
                return carry_out(*transport, operation);
            });
            findings.expect(fault.empty(), fault);
        }
    });
    CHECK(findings.text() == "");
}

TEST_CASE("ranks of a node that differ, or do not come, are named with the numbers of the whole group") {
    Findings findings;
    run_as_threads(4, [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, {2, 2});
        std::vector<float> values(100'000 + (terms.rank == 3 ? 1 : 0));
        const auto done = carry_out(*transport, all_reduce(buffer(std::span(values)), ReduceOp::sum));
        findings.expect(done.has_error() && done.error().code == Errc::invalid_argument, "an error");
        if (done.has_error())
            findings.expect(done.error().context.find("rank 3 (pid ") != std::string::npos, done.error().context);
    });
    run_as_threads(4, [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, {2, 2});
        std::vector<float> values(100'000);
        if (terms.rank == 3) {
            // Stays until the others are through: to leave is another failure than to be late.
            (void)terms.place->collect({"told/0", "told/1", "told/2"}, test::within(60s).deadline);
            return;
        }
        const auto done = transport->run(all_reduce(buffer(std::span(values)), ReduceOp::sum), test::within(3s));
        findings.expect(done.has_error() && done.error().code == Errc::timed_out, "a deadline");
        if (done.has_error())
            findings.expect(done.error().context.find("rank 3 (pid ") != std::string::npos, done.error().context);
        (void)terms.place->publish(cat("told/", terms.rank), "1", test::within(60s).deadline);
    });
    CHECK(findings.text() == "");
}

TEST_CASE("ranks that differ are all told so at once, also where one waits in its node's memory, another on TCP") {
    constexpr std::size_t part = by_nodes_chunk_bytes / sizeof(float);
    std::vector<float> memory(part + 20);
    const auto floats = [&memory](std::size_t count) {
        return Buffer{.data = memory.data(), .count = count, .type = DataType::f32};
    };
    std::vector<float> large(50'000 * 10), piece(part / 10 + 2);
    const auto scattered = [&](std::size_t count) {
        return reduce_scatter(ConstBuffer(memory.data(), count * 10, DataType::f32),
                              Buffer{.data = piece.data(), .count = count, .type = DataType::f32}, ReduceOp::sum);
    };
    const auto gathered = all_gather(floats(50'000), buffer(std::span(large)));
    const std::vector two{2, 2};
    struct Case {
        const char* name;
        std::vector<int> nodes;
        Operation even, odd;
    };
    // None gets as far as to write: the ranks may share the memory.
    const Case cases[] = {
        {"a small all_reduce and a large one", two, all_reduce(floats(10), ReduceOp::sum),
         all_reduce(floats(50'000), ReduceOp::sum)},
        {"a barrier and a large all_gather", two, barrier(), gathered},
        {"a large broadcast and a large all_gather", two, broadcast(floats(50'000), 0), gathered},
        {"a small broadcast and a reduce_scatter", {5, 5}, broadcast(floats(1), 0), scattered(50'000)},
        {"gathers to different roots", two, gather(floats(10), floats(40), 0), gather(floats(10), floats(40), 3)},
        {"a reduce and a large all_gather", two, reduce(floats(10), floats(10), ReduceOp::sum, 1), gathered},
        {"reduce_scatters of one part and of two", {5, 5}, scattered(part / 10), scattered(part / 10 + 1)},
    };
    for (const auto& one : cases) {
        Findings findings;
        run_as_threads(world_of(one.nodes), [&](const GroupTerms& terms) {
            const auto transport = join_over_nodes(terms, one.nodes);
            const auto done = transport->run(terms.rank % 2 == 0 ? one.even : one.odd, test::within(60s));
            findings.expect(done.has_error() && done.error().code == Errc::invalid_argument, "an error");
            findings.expect_error(done, {"ranks differ", describe(one.even), describe(one.odd)});
        });
        INFO(one.name);
        CHECK(findings.text() == "");
    }
}

TEST_CASE("ranks of nodes that contradict each other about what one sends are told both numbers, and go on") {
    const std::vector nodes{2, 2};
    Findings findings;
    run_as_threads(world_of(nodes), [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, nodes);
        const auto row = parts_in_a_row(std::vector<std::size_t>(4, 5));
        Parts parts{row, row};
        if (terms.rank == 3) parts.expected[2].count = 4;
        std::vector<float> input(20), output(20);
        findings.expect_error(
            transport->run(all_to_all_uneven(input.data(), output.data(), DataType::f32, parts), test::within(60s)),
            {"rank 2 (pid ", " sends 5 elements of f32 to rank 3 (pid ", "which expects 4"});
        for (const auto& one : {barrier(), all_reduce(buffer(std::span(input)), ReduceOp::sum)})
            findings.expect(transport->run(one, test::within(60s)), "the group goes on");
    });
    CHECK(findings.text() == "");
}

TEST_CASE("ranks are told that they differ where one takes memory, and where their first parts are alike") {
    Findings findings;
    run_as_threads(4, [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, {2, 2});
        if (terms.rank % 2 == 0)
            findings.expect_error(transport->allocate(4'096, test::within(60s)), {"ranks differ", "4096", "barrier"});
        else
            findings.expect_error(transport->run(barrier(), test::within(60s)), {"ranks differ", "4096", "barrier"});
    });
    constexpr std::size_t part = by_nodes_chunk_bytes / sizeof(float);
    run_as_threads(3, [&](const GroupTerms& terms) {
        const auto transport = join_over_nodes(terms, {2, 1});
        std::vector<float> values(part + (terms.rank == 2 ? 1 : 0));
        const auto done = transport->run(all_reduce(buffer(std::span(values)), ReduceOp::sum), test::within(60s));
        findings.expect_error(done, {"ranks differ", cat(part), cat(part + 1), "rank 2 (pid "});
    });
    CHECK(findings.text() == "");
}

TEST_CASE("ranks that make no nodes are told why") {
    run_as_threads(2, [&](const GroupTerms& terms) {
        const auto transport = make_transport(terms, {.choice = TransportChoice::hierarchical,
                                                      .addresses = {"127.0.0.1"},
                                                      .node = 0,
                                                      .watch = FdWatch::start().value()});
        MUSTER_CHECK(transport.has_error() &&
                     transport.error().context.find("all ranks are on one node") != std::string::npos);
    });
}

}  // namespace muster
