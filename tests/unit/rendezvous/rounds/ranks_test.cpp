#include "rendezvous/rounds/ledgers/ranks.h"

#include <algorithm>
#include <random>

#include "rendezvous/rounds/assignment.h"
#include "tests/support/catch.h"

namespace muster::rendezvous {
namespace {

using Ranks = std::vector<std::uint32_t>;

RankCandidate held(std::uint32_t rank) {
    return {.held = rank, .arrival = 100 - rank};
}

}  // namespace

TEST_CASE("first ranks go to those who ask, then to the endpoint's host, then by arrival") {
    CHECK(assign_ranks({{.held = {}, .arrival = 2}, {.held = {}, .arrival = 1}}) == Ranks{1, 0});
    CHECK(assign_ranks({{.held = {}, .arrival = 1}, {.held = {}, .hosts_endpoint = true, .arrival = 2}}) ==
          Ranks{1, 0});
    CHECK(assign_ranks({{.held = {}, .wanted = 1, .arrival = 1},
                        {.held = {}, .arrival = 2},
                        {.held = {}, .hosts_endpoint = true, .arrival = 3}}) == Ranks{1, 2, 0});
}

TEST_CASE("ranks beyond the world keep their order") {
    // Nodes 4, 7 and 9 of a scheduler's list are the ones that came.
    CHECK(assign_ranks({{.held = {}, .wanted = 9, .arrival = 1},
                        {.held = {}, .wanted = 4, .arrival = 2},
                        {.held = {}, .wanted = 7, .arrival = 3}}) == Ranks{2, 0, 1});
}

TEST_CASE("of two nodes that want one rank the first to arrive gets it") {
    CHECK(assign_ranks({{.held = {}, .wanted = 0, .arrival = 2}, {.held = {}, .wanted = 0, .arrival = 1}}) ==
          Ranks{1, 0});
}

TEST_CASE("a spare takes the hole and nobody else moves") {
    CHECK(assign_ranks({held(0), held(2), {.held = {}, .hosts_endpoint = true, .arrival = 9}}) == Ranks{0, 2, 1});
}

TEST_CASE("without a spare the highest rank moves into the hole") {
    CHECK(assign_ranks({held(0), held(2), held(3)}) == Ranks{0, 2, 1});
    CHECK(assign_ranks({held(0), held(3), held(4)}) == Ranks{0, 2, 1});
}

TEST_CASE("ranks are always 0 to size-1, and as few nodes change theirs as can be") {
    std::mt19937 random(20261121);
    for (int turn = 0; turn < 20'000; ++turn) {
        const auto before = 1 + random() % 12;
        std::vector<RankCandidate> candidates;
        for (std::uint32_t rank = 0; rank < before; ++rank)
            if (random() % 4 != 0) candidates.push_back(held(rank));
        const auto newcomers = random() % 4;
        for (std::uint32_t i = 0; i < newcomers; ++i)
            candidates.push_back({.held = {},
                                  .wanted = static_cast<std::int32_t>(random() % 16) - 1,
                                  .hosts_endpoint = random() % 4 == 0,
                                  .arrival = 200 + i});
        std::shuffle(candidates.begin(), candidates.end(), random);
        const auto ranks = assign_ranks(candidates);

        auto sorted = ranks;
        std::sort(sorted.begin(), sorted.end());
        for (std::size_t i = 0; i < sorted.size(); ++i) REQUIRE(sorted[i] == i);
        // No node below the new size has to move, and none does.
        for (std::size_t i = 0; i < ranks.size(); ++i)
            if (candidates[i].held && *candidates[i].held < ranks.size()) REQUIRE(ranks[i] == *candidates[i].held);
    }
}

TEST_CASE("the node of the store alone is told from where the round's nodes may come") {
    Member first, second;
    first.peer = "127.0.0.1";
    first.join.addresses = {"10.1.0.1", "10.2.0.1"};
    first.join.sources = {"10.1.0.1", "10.2.0.1", "fe80::1"};
    second.peer = "192.0.2.7";  // NAT
    second.group_rank = 1;
    second.join.addresses = {"gpu02"};  // --local-addr
    second.join.sources = {"10.1.0.2"};
    SealedRound round;
    round.number = 7;
    const auto told = assignments({&first, &second}, round, 0, 250ms);
    CHECK(told[0].store_clients ==
          std::vector<std::string>{"192.0.2.7", "10.1.0.1", "10.2.0.1", "gpu02", "fe80::1", "10.1.0.2"});
    CHECK(told[1].store_clients.empty());
    CHECK(assignments({&first}, round, 0, 250ms)[0].store_clients.empty());
}

}  // namespace muster::rendezvous
