// PAIRING_SEEDS=100000 simulates more seeds.
#include "worker_runtime/pairs/usual_speeds.h"

#include <cmath>
#include <random>

#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/pairs/seed_count.h"

using namespace muster::runtime;

namespace {

struct Cluster {
    std::vector<int> types{};
    std::vector<double> speeds{};  // by node, in MB/s
};

/// One to four machine types of 4 to 20 nodes, each of another generation.
Cluster draw(std::mt19937_64& draws) {
    Cluster cluster;
    const auto type_count = std::uniform_int_distribution<>(1, 4)(draws);
    for (int type = 0; type < type_count; ++type) {
        const auto usual = 100 * std::pow(10, std::uniform_real_distribution<>(0, 2)(draws));
        for (auto left = std::uniform_int_distribution<>(4, 20)(draws); left > 0; --left) {
            cluster.types.push_back(type);
            cluster.speeds.push_back(usual * std::uniform_real_distribution<>(0.6, 1.4)(draws));
        }
    }
    return cluster;
}

Pairing search(const Cluster& cluster, std::uint64_t seed) {
    Pairing pairing(static_cast<int>(cluster.types.size()), seed, cluster.types);
    UsualSpeeds usual(cluster.types, 25);
    const auto speed = [&](NodePair pair) {
        return static_cast<int>(std::min(cluster.speeds[static_cast<std::size_t>(pair.first)],
                                         cluster.speeds[static_cast<std::size_t>(pair.second)]));
    };
    for (auto pairs = pairing.next_round(); !pairs.empty(); pairs = pairing.next_round()) {
        for (const auto& pair : pairs) usual.told(pair, speed(pair));
        usual.end_round();
        for (const auto& pair : pairs) pairing.told(pair, !usual.is_slow({pair.first, pair.second}, speed(pair)));
        REQUIRE(pairing.round_count() < 64);
    }
    return pairing;
}

}  // namespace

TEST_CASE("machines of several generations in one job are no finding") {
    std::mt19937_64 draws(1);
    for (int seed = 0; seed < seed_count(); ++seed) {
        const auto cluster = draw(draws);
        const auto found = search(cluster, draws());
        INFO("seed " << seed << ", " << cluster.types.size() << " nodes");
        REQUIRE(found.bad_nodes().empty());
        REQUIRE(found.undecided_nodes().empty());
        REQUIRE(found.bad_paths().empty());
        REQUIRE(found.groups().size() == 1);
    }
}

TEST_CASE("a node that is slow among machines of its type is named, and no other one") {
    std::mt19937_64 draws(2);
    for (int seed = 0; seed < seed_count(); ++seed) {
        auto cluster = draw(draws);
        const auto slow = std::uniform_int_distribution<std::size_t>(0, cluster.types.size() - 1)(draws);
        cluster.speeds[slow] /= 12;  // still faster than whole machines of an older type, perhaps
        const auto found = search(cluster, draws());
        INFO("seed " << seed << ", " << cluster.types.size() << " nodes, slow: " << slow);
        REQUIRE(found.bad_nodes() == std::vector{static_cast<int>(slow)});
        REQUIRE(found.undecided_nodes().empty());
        REQUIRE(found.bad_paths().empty());
    }
}

TEST_CASE("a node whose type has fewer than three is compared with all") {
    UsualSpeeds usual({0, 0, 0, 0, 1, 2}, 25);
    CHECK(usual.of({0, 1}) == 0);
    for (const auto& [pair, speed] : std::map<NodePair, int>{{{0, 1}, 900}, {{2, 3}, 800}, {{4, 5}, 9}})
        usual.told(pair, speed);
    usual.end_round();
    CHECK(usual.of({0, 1}) == 900);
    CHECK(usual.of({4, 5}) == 800);  // the median
    CHECK(usual.of({0, 1, 2, 3, 4, 5}) == 800);
    usual.told({0, 1}, 20);
    usual.end_round();
    CHECK(usual.of({0, 1}) == 900);  // the first round decides
}

TEST_CASE("a pair is slow below the given part of what is usual, and a group below half of that") {
    for (const auto& [percent, least] : std::map<int, int>{{25, 200}, {60, 480}, {0, 0}}) {
        INFO(percent);
        UsualSpeeds usual({0, 0, 0}, percent);
        CHECK_FALSE(usual.is_slow({0, 1}, 0));  // unknown yet
        usual.told({0, 1}, 800);
        usual.end_round();
        CHECK_FALSE(usual.is_slow({0, 1}, least));
        CHECK_FALSE(usual.is_slow({0, 1, 2}, least / 2));
        if (least == 0) continue;
        CHECK(usual.is_slow({0, 1}, least - 1));
        CHECK(usual.is_slow({0, 1, 2}, least / 2 - 1));
    }
}

TEST_CASE("a node that is slow and the only one of its type is named") {
    std::mt19937_64 draws(3);
    for (int seed = 0; seed < seed_count(); ++seed) {
        const auto size = std::uniform_int_distribution<std::size_t>(4, 40)(draws);
        Cluster cluster{std::vector<int>(size, 0), std::vector<double>(size, 900)};
        cluster.types[0] = 1;  // it has lost a card
        cluster.speeds[0] = 10;
        INFO("seed " << seed << ", " << size << " nodes");
        REQUIRE(search(cluster, draws()).bad_nodes() == std::vector{0});
    }
}
