#include "worker_runtime/checkpoint/format/copy_pairs.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/support/catch.h"

using namespace muster::runtime;

TEST_CASE("copies go from each rank to its like on the next node, and the last node's to the first") {
    CHECK(copy_targets({0, 0, 1, 1, 2, 2}) == std::vector{2, 3, 4, 5, 0, 1});
    CHECK(copy_targets({7, 3}) == std::vector{1, 0});
    CHECK(copy_targets({0, 0, 0, 1, 1}) == std::vector{3, 4, 3, 0, 1});
    CHECK(copy_targets({0, 0}) == std::vector{-1, -1});
    CHECK(copy_targets({}).empty());
}

TEST_CASE("ranks that are tied by copies form a ring of their own") {
    const auto targets = copy_targets({0, 0, 1, 1, 2, 2});
    CHECK(copy_ring(targets, 0) == std::vector{0, 2, 4});
    CHECK(copy_ring(targets, 5) == std::vector{1, 3, 5});
    CHECK(copy_ring(copy_targets({0, 0, 0, 1, 1}), 2) == std::vector{0, 2, 3});
    CHECK(copy_ring({-1}, 0) == std::vector{0});
}

TEST_CASE("whatever the nodes: each copy leaves its node, no rank gets more than its part, and rings do not overlap") {
    std::mt19937 dice(7);
    for (int round = 0; round < 300; ++round) {
        std::vector<int> nodes(1 + dice() % 24);
        const int node_count = 1 + static_cast<int>(dice() % 6);
        for (auto& node : nodes) node = 5 * static_cast<int>(dice() % static_cast<unsigned>(node_count));
        std::map<int, std::vector<int>> of_node;
        for (std::size_t rank = 0; rank < nodes.size(); ++rank) of_node[nodes[rank]].push_back(static_cast<int>(rank));
        const auto targets = copy_targets(nodes);
        std::map<int, std::size_t> load;
        std::map<int, std::set<int>> next;  // by node
        for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
            if (of_node.size() == 1) {
                REQUIRE(targets[rank] == -1);
                continue;
            }
            const int to = nodes[static_cast<std::size_t>(targets[rank])];
            REQUIRE(to != nodes[rank]);
            next[nodes[rank]].insert(to);
            const auto senders = of_node[nodes[rank]].size(), receivers = of_node[to].size();
            REQUIRE(++load[targets[rank]] <= (senders + receivers - 1) / receivers);
            const auto ring = copy_ring(targets, static_cast<int>(rank));
            for (const int other : ring) REQUIRE(copy_ring(targets, other) == ring);
            REQUIRE(std::count(ring.begin(), ring.end(), targets[rank]) == 1);
        }
        for (const auto& [node, followers] : next) REQUIRE(followers.size() == 1);
    }
}
