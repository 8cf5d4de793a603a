// PAIRING_SEEDS=100000 simulates more seeds.
#include "worker_runtime/pairs/pairing.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "tests/support/catch.h"

using namespace muster::runtime;

namespace {

constexpr int tries = 3;  // as pair_test.h

struct Cluster {
    std::vector<bool> is_bad;
    std::set<NodePair> bad_paths;
    double noise = 0;
    std::mt19937_64 chance;
    std::set<NodePair> tested{};

    bool passes(NodePair pair) {
        tested.insert(pair);
        for (int i = 0; i < tries; ++i) {
            const bool works = !is_bad[static_cast<std::size_t>(pair.first)] &&
                               !is_bad[static_cast<std::size_t>(pair.second)] && !bad_paths.contains(pair);
            if (works && std::uniform_real_distribution<>()(chance) >= noise) return true;
        }
        return false;
    }
};

struct Searched {
    Pairing pairing;
    std::vector<int> bad_after_three_rounds;
};

/// Runs the search to its end, and checks on the way that no node is in two pairs of a round.
Searched search(Cluster& cluster, std::uint64_t seed) {
    Searched out{Pairing(static_cast<int>(cluster.is_bad.size()), seed), {}};
    for (auto pairs = out.pairing.next_round(); !pairs.empty(); pairs = out.pairing.next_round()) {
        std::set<int> seen;
        for (const auto& pair : pairs) {
            REQUIRE(pair.first < pair.second);
            REQUIRE(seen.insert(pair.first).second);
            REQUIRE(seen.insert(pair.second).second);
        }
        for (const auto& pair : pairs) out.pairing.told(pair, cluster.passes(pair));
        if (out.pairing.round_count() == 3) out.bad_after_three_rounds = out.pairing.bad_nodes();
        REQUIRE(out.pairing.round_count() < 64);
    }
    if (out.pairing.round_count() < 3) out.bad_after_three_rounds = out.pairing.bad_nodes();
    return out;
}

std::vector<int> bad_of(const Cluster& cluster) {
    std::vector<int> bad;
    for (std::size_t i = 0; i < cluster.is_bad.size(); ++i)
        if (cluster.is_bad[i]) bad.push_back(static_cast<int>(i));
    return bad;
}

/// Small clusters are as frequent as large ones.
Cluster draw(std::mt19937_64& draws, double noise) {
    const auto bits = std::uniform_int_distribution<>(1, 10)(draws);
    const auto size = std::uniform_int_distribution<>(1 << bits, 2 << bits)(draws);
    Cluster cluster{std::vector<bool>(static_cast<std::size_t>(size)), {}, noise, std::mt19937_64(draws())};
    const auto bad_count = std::uniform_int_distribution<>(0, size / 4)(draws);
    for (int i = 0; i < bad_count; ++i)
        cluster.is_bad[std::uniform_int_distribution<std::size_t>(0, cluster.is_bad.size() - 1)(draws)] = true;
    return cluster;
}

int seed_count() {
    const char* const given = std::getenv("PAIRING_SEEDS");
    return given != nullptr ? std::atoi(given) : 400;
}

}  // namespace

TEST_CASE("without chance exactly the bad nodes are named, in three rounds where a quarter is bad") {
    std::mt19937_64 draws(1);
    for (int seed = 0; seed < seed_count(); ++seed) {
        auto cluster = draw(draws, 0);
        const auto found = search(cluster, draws());
        const auto bad = bad_of(cluster);
        INFO("seed " << seed << ", " << cluster.is_bad.size() << " nodes, " << bad.size() << " bad");
        REQUIRE(found.pairing.bad_nodes() == bad);
        REQUIRE(found.pairing.undecided_nodes().empty());
        REQUIRE(found.pairing.bad_paths().empty());
        // The odd one of an odd number is one suspect more.
        const auto suspects_max = 2 * bad.size() + cluster.is_bad.size() % 2;
        if (2 * suspects_max <= cluster.is_bad.size()) REQUIRE(found.bad_after_three_rounds == bad);
    }
}

TEST_CASE("with one of twenty tests failing by chance all bad nodes are named, and at most one in 10,000 others") {
    std::mt19937_64 draws(2);
    long node_count = 0, wrong_count = 0, missed_count = 0, path_count = 0;
    for (int seed = 0; seed < seed_count(); ++seed) {
        auto cluster = draw(draws, 0.05);
        const auto found = search(cluster, draws());
        const auto bad = bad_of(cluster), named = found.pairing.bad_nodes();
        std::vector<int> wrong, missed;
        std::ranges::set_difference(named, bad, std::back_inserter(wrong));
        std::ranges::set_difference(bad, named, std::back_inserter(missed));
        node_count += static_cast<long>(cluster.is_bad.size());
        wrong_count += static_cast<long>(wrong.size());
        missed_count += static_cast<long>(missed.size());
        path_count += static_cast<long>(found.pairing.bad_paths().size());
        REQUIRE(found.pairing.undecided_nodes().empty());
    }
    WARN(wrong_count << " of " << node_count << " nodes named wrongly, " << path_count << " paths");
    CHECK(missed_count == 0);
    CHECK(wrong_count * 10'000 <= std::max(node_count, 30'000L));
    CHECK(path_count * 10'000 <= node_count);
}

TEST_CASE("a node is bad once it failed with two cleared nodes, a path once it failed three times") {
    Pairing pairing(5, 1);
    const auto first = pairing.next_round();
    REQUIRE(first.size() == 2);
    pairing.told(first[0], true);
    pairing.told(first[1], true);
    // The odd one.
    const auto second = pairing.next_round();
    REQUIRE(second.size() == 1);
    pairing.told(second[0], false);
    CHECK(pairing.bad_nodes().empty());
    const auto third = pairing.next_round();
    REQUIRE(third.size() == 1);
    CHECK(third != second);
    SECTION("it fails with another one, too") {
        pairing.told(third[0], false);
        CHECK(pairing.bad_nodes().size() == 1);
        CHECK(pairing.bad_paths().empty());
    }
    SECTION("it passes with another one") {
        pairing.told(third[0], true);
        for (int i = 0; i < 2; ++i) {
            CHECK(pairing.bad_paths().empty());
            REQUIRE(pairing.next_round() == second);
            pairing.told(second[0], false);
        }
        CHECK(pairing.bad_paths() == second);
        CHECK(pairing.bad_nodes().empty());
    }
    SECTION("it passes with another one, and the path on the second try") {
        pairing.told(third[0], true);
        REQUIRE(pairing.next_round() == second);
        pairing.told(second[0], true);
        CHECK(pairing.bad_paths().empty());
    }
    CHECK(pairing.next_round().empty());
}

TEST_CASE("a bad path between two good nodes is named as a path") {
    std::mt19937_64 draws(3);
    for (int seed = 0; seed < 200; ++seed) {
        Cluster cluster{std::vector<bool>(4 + static_cast<std::size_t>(seed % 60)), {}, 0, std::mt19937_64(1)};
        // The pair that the first round draws.
        Pairing first(static_cast<int>(cluster.is_bad.size()), static_cast<std::uint64_t>(seed));
        cluster.bad_paths.insert(first.next_round().front());
        const auto found = search(cluster, static_cast<std::uint64_t>(seed));
        CHECK(found.pairing.bad_nodes().empty());
        CHECK(found.pairing.bad_paths() == std::vector<NodePair>(cluster.bad_paths.begin(), cluster.bad_paths.end()));
        CHECK(found.pairing.round_count() <= 5);
    }
}

TEST_CASE("one bad path never gets a good node named, with an odd number of nodes neither") {
    std::mt19937_64 draws(4);
    for (int seed = 0; seed < 10 * seed_count(); ++seed) {
        const auto size = 3 + static_cast<std::size_t>(seed) % 7;
        std::vector<int> order(size);
        std::iota(order.begin(), order.end(), 0);
        std::ranges::shuffle(order, draws);
        Cluster cluster{std::vector<bool>(size), {}, 0, std::mt19937_64(1)};
        cluster.bad_paths.insert(std::minmax(order[0], order[1]));
        // With three nodes and one of them bad no pair would pass.
        const bool has_bad = size > 3 && draws() % 2 == 0;
        if (has_bad) cluster.is_bad[static_cast<std::size_t>(order[2])] = true;
        const auto found = search(cluster, draws());
        INFO("seed " << seed << ", " << size << " nodes, " << has_bad << " bad");
        REQUIRE(found.pairing.bad_nodes() == bad_of(cluster));
        REQUIRE(found.pairing.undecided_nodes().empty());
        // A path that no round drew is not known.
        for (const auto& path : found.pairing.bad_paths()) REQUIRE(cluster.bad_paths.contains(path));
        if (found.pairing.bad_paths().empty()) REQUIRE(!cluster.tested.contains(*cluster.bad_paths.begin()));
    }
}

TEST_CASE("two nodes that do not reach each other stay undecided, as do nodes of which none is good") {
    for (const std::size_t size : {2, 3, 8}) {
        Cluster cluster{std::vector<bool>(size, true), {}, 0, std::mt19937_64(1)};
        const auto found = search(cluster, 7);
        CHECK(found.pairing.undecided_nodes().size() == size);
        CHECK(found.pairing.bad_nodes().empty());
    }
    CHECK(Pairing(1, 0).next_round().empty());
}

TEST_CASE("more bad nodes than good ones take more rounds") {
    Cluster cluster{std::vector<bool>(64, true), {}, 0, std::mt19937_64(1)};
    for (std::size_t i = 0; i < 20; ++i) cluster.is_bad[i] = false;
    const auto found = search(cluster, 11);
    CHECK(found.pairing.bad_nodes().size() == 44);
    CHECK(found.pairing.undecided_nodes().empty());
    CHECK(found.pairing.round_count() > 2);
}
