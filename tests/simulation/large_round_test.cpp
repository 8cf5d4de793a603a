// The members of large rounds agree that the daemon is lost, in time and at a bounded cost; and no planted bug of their
// tree goes unseen.
#include <array>

#include "tests/simulation/large_round.h"
#include "tests/support/catch.h"

namespace muster::simulation {

namespace {

LargeRoundResult run(const LargeRoundSetting& setting) {
    return LargeRound(setting).run();
}

/// Deep trees of which some, or all but a few, are cut off.
std::uint32_t alive_at_seal(TreeBug bug) {
    constexpr std::array cut_permilles{300U, 900U, 970U};
    std::uint32_t count = 0;
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
        const auto result = run({.seed = seed,
                                 .size = 40,
                                 .fan_out = static_cast<std::uint32_t>(2 + seed % 3),
                                 .away = 6s,
                                 .cut_permille = cut_permilles[seed % cut_permilles.size()],
                                 .suspended_permille = 300,
                                 .bug = bug});
        CHECK(result.sealed);
        count += result.alive_at_seal_count;
    }
    return count;
}

}  // namespace

TEST_CASE("no worker of a large round ends because the daemon is away") {
    for (const std::uint32_t size : {2U, 17U, 18U, 300U, 1000U, 2000U}) {
        const auto result = run({.seed = size, .size = size, .away = size > 300 ? 6s : 12s});
        INFO(size);
        CHECK(result.ended_early_count == 0);
        CHECK(result.sealed);
        // Each member asks one other, as often as the tree is deep: the messages grow with the members, and no more.
        CHECK(result.question_count < std::uint64_t{size} * 150);
        CHECK(result.busiest < 1s);
    }
}

TEST_CASE("no worker ends where the heartbeats are as slow as they may be") {
    for (const std::uint32_t size : {2U, 17U, 300U}) {
        const auto result = run({.seed = size, .size = size, .heartbeat = 500ms, .away = 12s});
        INFO(size);
        CHECK(result.ended_early_count == 0);
        CHECK(result.sealed);
    }
    const auto slow =
        run({.size = 1000, .heartbeat = 500ms, .latency_min = 5ms, .latency_max = 16ms, .lost_permille = 1});
    CHECK(slow.ended_early_count == 0);
    CHECK(slow.sealed);
}

TEST_CASE("no worker ends where pings are lost as well, at the slowest heartbeats and on slow links") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        const auto result = run({.seed = seed,
                                 .size = seed % 4 == 0 ? 1000U : 300U,
                                 .heartbeat = native::slowest_heartbeat(5s),
                                 .latency_min = 5ms,
                                 .latency_max = 16ms,
                                 .lost_permille = 1,
                                 .resent_permille = 200,
                                 .away = 6s});
        INFO(seed);
        CHECK(result.ended_early_count == 0);
        CHECK(result.sealed);
    }
}

TEST_CASE("no worker of ten thousand members ends because the daemon is away", "[.by_hand]") {
    for (const auto lease : {5s, 15s}) {
        const auto heartbeat = native::heartbeat_pace(lease, 10'000);
        const auto result =
            run({.size = 10'000, .lease = lease, .heartbeat = heartbeat, .lost_permille = 1, .away = 2 * lease});
        CHECK(result.ended_early_count == 0);
        WARN("lease " << lease.count() << " s: " << result.question_count
                      << " questions, the busiest member worked for " << result.busiest / 1ms << " ms");
    }
}

TEST_CASE("no worker of a large round ends where links are slow and lose questions") {
    // A way through the tree takes up to 0.01 lease: 16 ms each step of three.
    const auto result = run({.size = 1000, .latency_min = 5ms, .latency_max = 16ms, .lost_permille = 1});
    CHECK(result.ended_early_count == 0);
    CHECK(result.sealed);
}

TEST_CASE("members that no other one reaches are stepped over") {
    const auto result = run({.size = 1000, .refusing_permille = 100, .away = 6s});
    CHECK(result.ended_early_count == 0);
    CHECK(result.stepped_over_count > 0);
}

TEST_CASE("no member keeps its workers where the word of one comes to nobody") {
    LargeRoundSetting setting{.size = 600, .refusing_permille = 250, .away = 6s};
    const auto result = run(setting);
    CHECK_FALSE(result.has_ways);
    CHECK(broken_by(result).empty());
    setting.bug = TreeBug::vouches_for_silent;
    CHECK_THAT(broken_by(run(setting)), Catch::Contains("kept their workers without a word of all"));
}

TEST_CASE("no worker of a member that is cut off lives when the next round is sealed") {
    CHECK(alive_at_seal(TreeBug::none) == 0);
    const auto large = run({.size = 1000, .away = 6s, .cut_permille = 300, .suspended_permille = 300});
    CHECK(large.sealed);
    CHECK(large.ended_early_count == 0);
    CHECK(large.alive_at_seal_count == 0);
}

TEST_CASE("planted bugs of the tree keep such workers alive") {
    CHECK(alive_at_seal(TreeBug::vouches_for_silent) > 0);
    CHECK(alive_at_seal(TreeBug::forgets_ages) > 0);
    CHECK(alive_at_seal(TreeBug::skips_parents) > 0);
}

TEST_CASE("a planted bug in the pace of the heartbeats ends workers while the daemon is away") {
    LargeRoundSetting setting{
        .size = 1000, .heartbeat = native::slowest_heartbeat(5s), .latency_min = 12ms, .latency_max = 16ms, .away = 6s};
    CHECK(run(setting).ended_early_count == 0);
    setting.bug = TreeBug::skips_heartbeats;
    CHECK(run(setting).ended_early_count > 0);
}

}  // namespace muster::simulation
