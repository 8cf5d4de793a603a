#include "rendezvous/rounds/ledgers/activity_ledger.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

namespace muster::rendezvous {
namespace {

WorkerActivity waiting(std::int32_t rank) {
    return {rank, 100 + rank, 12'000, "asleep", true, "all_reduce 42 of world", "reduce (train.py:41)"};
}

WorkerActivity missing(std::int32_t rank) {
    return {
        rank, 100 + rank, 13'400, "asleep in hrtimer_nanosleep", false, "all_reduce 41 of world", "load (data.py:7)"};
}

}  // namespace

TEST_CASE("ranks that stand in one place are one line, and who is missing is another before it") {
    ActivityLedger ledger;
    ledger.add("gpu2", waiting(2));
    ledger.add("gpu1", waiting(0));
    ledger.add("gpu3", missing(3));
    ledger.add("gpu1", waiting(1));
    ledger.add("gpu1", waiting(1));  // said again
    CHECK(lines_of(ledger.list()) ==
          std::vector<std::string>{
              "when the round ended its ranks stood in different places:",
              "  rank 3 on gpu3 (pid 103): had done nothing for 13.4 s, asleep in hrtimer_nanosleep, after all_reduce "
              "41 of "
              "world, missing from all_reduce 42 of world, at load (data.py:7)",
              "  ranks 0-2 (3 workers): had done nothing for 12 s, asleep, inside all_reduce 42 of world, at reduce "
              "(train.py:41)"});
    CHECK(ledger.list()[1].host == "gpu1");  // the lowest rank's
}

TEST_CASE("scripts without a flight record are told apart by their lines alone") {
    ActivityLedger ledger;
    ledger.add("a", {0, 10, 4'000, "asleep", false, "", "backward (train.py:41)"});
    ledger.add("b", {1, 11, 4'000, "asleep", false, "", "broadcast (c10d.py:9), from main (train.py:44)"});
    CHECK(
        lines_of(ledger.list()) ==
        std::vector<std::string>{"when the round ended its ranks stood in different places:",
                                 "  rank 0 on a (pid 10): had done nothing for 4 s, asleep, at backward (train.py:41)",
                                 "  rank 1 on b (pid 11): had done nothing for 4 s, asleep, at broadcast (c10d.py:9), "
                                 "from main (train.py:44)"});
    CHECK(lines_of({}).empty());
}

TEST_CASE("who was stopped in the midst of what the others wait in stands apart") {
    ActivityLedger ledger;
    ledger.add("gpu1", waiting(0));
    auto stopped = waiting(1);
    stopped.state = "stopped by a signal in do_signal_stop";
    ledger.add("gpu1", stopped);
    ledger.add("gpu2", waiting(2));
    const auto groups = ledger.list();
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].first == stopped);
    CHECK(groups[1].ranks == "0,2");
}

TEST_CASE("ranks that were lost with their node stand apart, each node's together") {
    ActivityLedger ledger;
    for (std::int32_t rank = 4; rank < 8; ++rank)
        ledger.add(rank < 6 ? "gpu3" : "gpu4", {rank, 100 + rank, 0, "lost with its node", false, "", ""});
    ledger.add("gpu1", waiting(0));
    ledger.add("gpu2", {1, 101, 6'000, "asleep", false, "", ""});  // no flight record and no place, but not lost
    const auto lines = lines_of(ledger.list());
    REQUIRE(lines.size() == 5);
    CHECK(lines[1].starts_with("  rank 1 on gpu2 (pid 101): had done nothing for 6 s"));
    CHECK(lines[2] == "  ranks 4-5 (2 workers) on gpu3: lost with its node, missing from all_reduce 42 of world");
    CHECK(lines[3] == "  ranks 6-7 (2 workers) on gpu4: lost with its node, missing from all_reduce 42 of world");
    ledger.add("gpu5", {8, 108, 0, "lost with its node", false, "", ""});
    const auto all = lines_of(ledger.list());
    CHECK(std::count(all.begin(), all.end(),
                     "  rank 8 on gpu5 (pid 108): lost with its node, missing from all_reduce 42 of world") == 1);
}

TEST_CASE("where there are too many places, those who wait give way to those who are missing") {
    ActivityLedger ledger;
    for (std::int32_t rank = 0; rank < 40; ++rank) {
        auto one = waiting(rank);
        one.place = cat("f (x.py:", rank, ")");
        ledger.add("a", one);
    }
    for (std::int32_t rank = 50; rank < 53; ++rank) {
        auto one = missing(rank);
        one.place = cat("g (x.py:", rank, ")");
        ledger.add("b", one);
    }
    const auto groups = ledger.list();
    REQUIRE(groups.size() == ActivityLedger::groups_max);
    CHECK(groups[2].first.rank == 52);
    CHECK_FALSE(groups[2].first.inside);
    CHECK(groups[3].first.inside);
}

TEST_CASE("the next daemon tells the same of it") {
    ActivityLedger ledger;
    ledger.add("gpu1", waiting(0));
    ledger.add("gpu2", waiting(1));
    ledger.add("gpu3", missing(5));
    ActivityLedger next(ledger.kept());
    CHECK(next.list() == ledger.list());
    next.add("gpu2", waiting(1));
    CHECK(next.list() == ledger.list());
    next.add("gpu2", waiting(2));
    CHECK(next.list()[1].ranks == "0-2");
}

TEST_CASE("the ranks of one node are told as the one, or from the first to the last") {
    CHECK(ranks_of_node(0, 1) == "rank 0");
    CHECK(ranks_of_node(4, 2) == "ranks 4 to 5");
    CHECK(ranks_of_node(0, 8) == "ranks 0 to 7");
}

}  // namespace muster::rendezvous
