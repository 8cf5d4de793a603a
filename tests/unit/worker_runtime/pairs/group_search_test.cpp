// PAIRING_SEEDS=100000 simulates more seeds.
#include "worker_runtime/pairs/group_search.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <set>

#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/pairs/seed_count.h"

using namespace muster::runtime;

namespace {

/// Groups of at least `needed` nodes fail if all of `culprits` are among them.
struct Fault {
    NodeGroup culprits;
    std::size_t needed = 3;
};

struct Searched {
    std::vector<NodeGroup> found;
    int rounds = 0;
};

NodeGroup all_of(int count) {
    NodeGroup nodes(static_cast<std::size_t>(count));
    std::iota(nodes.begin(), nodes.end(), 0);
    return nodes;
}

/// Runs the search to its end, and checks on the way that no node is in two groups of a round.
Searched search(int node_count, const std::vector<Fault>& faults, double noise, std::mt19937_64& chance) {
    GroupSearch search(all_of(node_count));
    Searched result;
    for (auto groups = search.next_round(); !groups.empty(); groups = search.next_round()) {
        std::set<int> seen;
        std::vector<bool> passed;
        for (const auto& group : groups) {
            REQUIRE(group.size() >= 2);
            REQUIRE(group.size() <= 32);
            for (const int node : group) REQUIRE(seen.insert(node).second);
            const bool fails = std::ranges::any_of(faults, [&](const Fault& fault) {
                return group.size() >= fault.needed && std::ranges::all_of(fault.culprits, [&](int node) {
                           return std::ranges::find(group, node) != group.end();
                       });
            });
            passed.push_back(!fails && std::uniform_real_distribution<>()(chance) >= noise);
        }
        search.told(passed);
        REQUIRE(++result.rounds <= 9);
    }
    result.found = search.found();
    std::ranges::sort(result.found);
    return result;
}

}  // namespace

TEST_CASE("without a fault of groups one round is enough, and fewer than three nodes need none") {
    std::mt19937_64 chance(1);
    for (const int count : {0, 1, 2}) CHECK(GroupSearch(all_of(count)).next_round().empty());
    for (const int count : {3, 4, 32, 33, 1000}) {
        const auto result = search(count, {}, 0, chance);
        CHECK(result.rounds == 1);
        CHECK(result.found.empty());
    }
}

TEST_CASE("nodes with which a group fails are named, and no other one, with chance and without") {
    std::mt19937_64 draws(2);
    for (const double noise : {0.0, 0.05}) {
        long node_count = 0, wrong_count = 0, culprit_count = 0, missed_count = 0;
        int round_max = 0;
        for (int seed = 0; seed < seed_count(); ++seed) {
            const auto count = std::uniform_int_distribution<>(8, 300)(draws);
            std::set<int> culprits;
            for (auto left = std::uniform_int_distribution<>(0, std::min(3, count / 8))(draws); left > 0; --left)
                culprits.insert(std::uniform_int_distribution<>(0, count - 1)(draws));
            // Where both halves fail, neither has nodes of the other to fill it up.
            const auto needed_max = std::max(2, std::min(count, 16) >> (culprits.size() + 1));
            const auto needed =
                std::uniform_int_distribution<std::size_t>(2, static_cast<std::size_t>(needed_max))(draws);
            std::vector<Fault> faults;
            std::vector<NodeGroup> expected;
            for (const int node : culprits) {
                faults.push_back({{node}, needed});
                expected.push_back({node});
            }
            const auto result = search(count, faults, noise, draws);
            INFO("seed " << seed << ", " << count << " nodes, groups of " << needed << ", " << culprits.size()
                         << " culprits");
            node_count += count;
            round_max = std::max(round_max, result.rounds);
            std::set<int> named;
            for (const auto& one : result.found) named.insert(one.begin(), one.end());
            std::vector<int> both;
            std::ranges::set_intersection(named, culprits, std::back_inserter(both));
            culprit_count += static_cast<long>(culprits.size());
            missed_count += static_cast<long>(culprits.size() - both.size());
            wrong_count += static_cast<long>(named.size() - both.size());
            if (noise == 0) REQUIRE(result.found == expected);
        }
        WARN(wrong_count << " of " << node_count << " nodes named wrongly, " << missed_count << " of " << culprit_count
                         << " not named, at most " << round_max << " rounds");
        CHECK(missed_count * 1000 <= std::max(culprit_count, 3000L));
        CHECK(wrong_count * 10'000 <= std::max(node_count, 30'000L));
    }
}

TEST_CASE("a fault that needs two nodes, or more than half of the nodes, has all of its nodes named") {
    std::mt19937_64 draws(3);
    for (int seed = 0; seed < seed_count(); ++seed) {
        const auto count = std::uniform_int_distribution<>(8, 32)(draws);
        auto nodes = all_of(count);
        std::ranges::shuffle(nodes, draws);
        NodeGroup two{std::min(nodes[0], nodes[1]), std::max(nodes[0], nodes[1])};
        const auto found = search(count, {{two, 3}}, 0, draws).found;
        INFO("seed " << seed << ", " << count << " nodes");
        REQUIRE(found.size() == 1);
        REQUIRE(std::ranges::includes(found.front(), two));
        // A switch that stalls under more nodes than a half has.
        const auto all = search(count, {{{}, static_cast<std::size_t>(count) * 3 / 4}}, 0, draws).found;
        REQUIRE(all == std::vector<NodeGroup>{all_of(count)});
    }
}
