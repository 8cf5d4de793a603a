// Many nodes of many ranks on this host, each rank a process: nodes speak TCP over partners, and large operations go
// from node to node.
#include <cstdio>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/integration/runtime/collective_cases.h"
#include "tests/integration/runtime/hierarchical/node_ranks.h"
#include "tests/integration/runtime/tcp/crowd.h"
#include "tests/integration/runtime/tcp/tcp_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"

namespace muster {

using namespace runtime;
using test::carry_out;
using test::world_of;

namespace {

double seconds_since(Instant began) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// Runs `cases` on ranks in processes of their own. No rank may have more than `connections_max`.
void require_right(const std::vector<int>& nodes, const std::vector<test::CollectiveCase>& cases, int connections_max) {
    const int size = world_of(nodes);
    const auto place = std::make_shared<test::MeetingInPages>(static_cast<std::size_t>(8 * size));
    test::RankProcesses ranks(size, [&](const GroupTerms& given) {
        const auto began = std::chrono::steady_clock::now();
        GroupTerms terms = given;
        terms.place = place;
        const auto complain = [&](const std::string& what) {
            std::fprintf(stderr, "rank %d: %s\n", terms.rank, what.c_str());
            return 1;
        };
        const auto world = test::join_over_nodes(terms, nodes);
        if (!carry_out(*world, barrier())) return complain("the first barrier");
        if (terms.rank == 0)
            std::fprintf(stderr, "%zu nodes, %d ranks: %.2f s until all met\n", nodes.size(), size,
                         seconds_since(began));
        for (const auto& one : cases) {
            const auto fault = test::fault_in(one, terms.rank,
                                              [&](const Operation& operation) { return carry_out(*world, operation); });
            if (!fault.empty()) return complain(fault);
        }
        // A message between nodes, and one inside.
        for (const int distance : {1, 11}) {
            float value = static_cast<float>(terms.rank), other = -1;
            const int from = (terms.rank + size - distance) % size;
            Result<void> sent;
            std::thread sender([&] {
                sent = carry_out(*world, send({&value, 1, DataType::f32}, (terms.rank + distance) % size));
            });
            const auto got = carry_out(*world, receive({&other, 1, DataType::f32}, from));
            sender.join();
            if (!sent || !got || other != static_cast<float>(from)) return complain("a message");
        }
        if (const int count = test::tcp_connections(); count > connections_max)
            return complain(cat(count, " connections"));
        if (!carry_out(*world, barrier())) return complain("the last barrier");
        if (terms.rank == 0)
            std::fprintf(stderr, "%zu nodes, %d ranks: %.2f s in all\n", nodes.size(), size, seconds_since(began));
        return 0;
    });
    const auto ends = ranks.join(std::chrono::seconds(300));
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
        INFO("rank " << rank << " of " << size << ": code or signal " << ends[rank].code);
        REQUIRE((ends[rank].exited && ends[rank].code == 0));
    }
}

std::vector<test::CollectiveCase> cases_of(int size, DataType type, const std::vector<std::size_t>& counts,
                                           std::span<const ReduceOp> reductions) {
    std::vector<test::CollectiveCase> cases;
    std::uint32_t seed = 6;
    for (const auto count : counts)
        for (auto& one : test::collective_cases(size, type, count, ++seed, reductions)) cases.push_back(std::move(one));
    return cases;
}

constexpr ReduceOp sums[] = {ReduceOp::sum, ReduceOp::avg};

}  // namespace

TEST_CASE("16 nodes of 8 ranks: every collective equals the serial result, small and from node to node") {
    const std::vector<int> nodes(16, 8);
    // 13 partners with three connections. Neighbours in the chain of nodes, and first ranks, are among them. Messages
    // come later.
    const std::size_t by_nodes = by_nodes_bytes_min / sizeof(float);
    auto cases = cases_of(128, DataType::f32, {1, 300, by_nodes + 3}, sums);
    for (auto& one : cases_of(128, DataType::bf16, {2 * by_nodes + 3}, sums)) cases.push_back(std::move(one));
    require_right(nodes, cases, 3 * 13 + 10);
}

TEST_CASE("nodes of different sizes, which are at no distance of a power of two, are partners all the same") {
    const std::vector<int> nodes{5, 7, 6, 1, 9, 5, 6};
    const std::size_t by_nodes = by_nodes_bytes_min / sizeof(float);
    require_right(nodes, cases_of(39, DataType::f32, {1, by_nodes + 3}, test::all_reductions), 3 * 17 + 10);
}

TEST_CASE("64 nodes of 2 ranks exchange tiny messages") {
    const std::vector<int> nodes(64, 2);
    require_right(nodes, cases_of(128, DataType::i32, {1, 40}, std::span(sums).first(1)), 3 * 13 + 10);
}

}  // namespace muster
