#include "agent/process/standby_table.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

using Ids = std::vector<std::uint64_t>;

WorkerCommand worker(std::uint32_t local_rank, std::vector<std::string> environment = {"OMP_NUM_THREADS=1", "RANK=0"}) {
    WorkerCommand made;
    made.local_rank = local_rank;
    made.argv = {"python3", "-u", "train.py"};
    made.environment = std::move(environment);
    return made;
}

/// A table whose standby process 7, for local rank 0, is ready.
StandbyTable ready_table() {
    StandbyTable table(1);
    CHECK(table.take(worker(0), Instant{}).id == 0);
    table.started(0, 7, Instant{});
    table.ready(7, false);
    return table;
}

}  // namespace

TEST_CASE("nothing is expected of a standby process at the first start of a worker") {
    StandbyTable table(1);
    const auto choice = table.take(worker(0), Instant{});
    CHECK(choice.id == 0);
    CHECK(choice.why_not.empty());
    CHECK(table.next(Instant{}));
}

TEST_CASE("a ready standby process becomes the worker of another round, once") {
    auto table = ready_table();
    CHECK(table.take(worker(0, {"OMP_NUM_THREADS=1", "RANK=3"}), Instant{}).id == 7);
    const auto again = table.take(worker(0), Instant{});
    CHECK(again.id == 0);
    CHECK(again.why_not == "its standby process was not started yet");
}

TEST_CASE("a standby process is made before the first round for a worker that is expected") {
    StandbyTable table(1);
    table.expect(worker(0));
    table.expect(worker(1));
    REQUIRE(table.next(Instant{}));
    CHECK(table.next(Instant{})->local_rank == 0);
    table.started(0, 7, Instant{});
    table.ready(7, false);
    table.expect(worker(0));
    CHECK_FALSE(table.next(Instant{}));
    CHECK(table.take(worker(0, {"OMP_NUM_THREADS=1", "RANK=3", "GLOO_SOCKET_IFNAME=eth0"}), Instant{}).id == 7);
}

TEST_CASE("a variable that an import may have read discards the standby process") {
    auto table = ready_table();
    const auto choice = table.take(worker(0, {"OMP_NUM_THREADS=2", "RANK=0"}), Instant{});
    CHECK(choice.id == 0);
    CHECK(choice.discarded == Ids{7});
    CHECK(choice.why_not == "its environment differs in OMP_NUM_THREADS");
}

TEST_CASE("a variable that is new or gone, another command and other CPUs discard it too") {
    auto other = worker(0);
    SECTION("new") {
        other.environment.emplace_back("CUDA_VISIBLE_DEVICES=0");
    }
    SECTION("gone") {
        other.environment = {"RANK=0"};
    }
    SECTION("command") {
        other.argv.emplace_back("--fast");
    }
    SECTION("CPUs") {
        other.cpus = {1};
    }
    SECTION("signal") {
        other.ignored_signal = 10;
    }
    auto table = ready_table();
    CHECK(table.take(other, Instant{}).discarded == Ids{7});
}

TEST_CASE("one that imports is left alone until it counts as hung") {
    StandbyTable table(2);
    table.take(worker(0), Instant{});
    table.take(worker(1), Instant{});
    table.started(0, 7, Instant{});
    CHECK_FALSE(table.next(Instant{} + standby_import_max - 1s));
    REQUIRE(table.next(Instant{} + standby_import_max));
    CHECK(table.next(Instant{} + standby_import_max)->local_rank == 1);

    const auto early = table.take(worker(0), Instant{} + 5s);
    CHECK(early.id == 0);
    CHECK(early.discarded.empty());
    CHECK(early.why_not == "its standby process is still importing after 5 s");
    CHECK(table.take(worker(0), Instant{} + standby_import_max).discarded == Ids{7});
}

TEST_CASE("one that failed is not tried again before the next restart, whose line has the reason") {
    auto table = ready_table();
    CHECK(table.ended(7, "its standby process ended: exit code 1"));
    CHECK_FALSE(table.ended(8, "it is not known"));
    CHECK_FALSE(table.next(Instant{}));
    CHECK(table.take(worker(0), Instant{}).why_not == "its standby process ended: exit code 1");
    CHECK(table.next(Instant{}));
}

TEST_CASE("at most the count are kept, and none after clear") {
    StandbyTable table(1);
    table.take(worker(1), Instant{});
    table.take(worker(0), Instant{});
    REQUIRE(table.next(Instant{}));
    CHECK(table.next(Instant{})->local_rank == 0);
    table.started(0, 7, Instant{});
    table.ready(7, false);
    CHECK_FALSE(table.next(Instant{}));
    table.clear();
    CHECK_FALSE(table.next(Instant{}));
    StandbyTable none(0);
    none.take(worker(0), Instant{});
    CHECK_FALSE(none.next(Instant{}));
}

TEST_CASE("a standby process serves whichever local rank has died, its own one first") {
    const auto of = [](std::uint32_t local_rank) {
        return worker(local_rank, {cat("LOCAL_RANK=", local_rank), "OMP_NUM_THREADS=1"});
    };
    StandbyTable table(2);
    for (std::uint32_t local_rank = 0; local_rank < 4; ++local_rank) table.take(of(local_rank), Instant{});
    for (const std::uint32_t local_rank : {0, 1}) {
        REQUIRE(table.next(Instant{})->local_rank == local_rank);
        table.started(local_rank, 7 + local_rank, Instant{});
        table.ready(7 + local_rank, false);
    }
    CHECK(table.take(of(1), Instant{}).id == 8);
    CHECK(table.take(of(3), Instant{}).id == 7);
    const auto last = table.take(of(2), Instant{});
    CHECK(last.id == 0);
    CHECK(last.discarded.empty());
    CHECK(last.why_not.empty());  // beyond the count
    CHECK(table.next(Instant{})->local_rank == 0);
}

TEST_CASE("a standby process serves no local rank of another placement") {
    auto table = ready_table();
    auto other = worker(1);
    other.cpus = {1};
    CHECK(table.take(other, Instant{}).id == 0);
    CHECK(table.take(worker(0), Instant{}).id == 7);
}

TEST_CASE("one that failed or hangs does not stop the restart of another local rank from being followed by a new one") {
    StandbyTable table(1);
    for (std::uint32_t local_rank = 0; local_rank < 8; ++local_rank) table.take(worker(local_rank), Instant{});
    table.started(0, 7, Instant{});
    SECTION("failed") {
        table.ended(7, "its standby process ended: signal 9");
        CHECK_FALSE(table.next(Instant{}));  // not tried without end
        CHECK(table.take(worker(5), Instant{}).discarded.empty());
        REQUIRE(table.next(Instant{}));
        CHECK(table.next(Instant{})->local_rank == 0);
        CHECK(table.take(worker(0), Instant{}).why_not == "its standby process ended: signal 9");
    }
    SECTION("hung") {
        const auto late = Instant{} + standby_import_max;
        CHECK_FALSE(table.next(late));
        CHECK(table.take(worker(5), late).discarded == Ids{7});
        REQUIRE(table.next(late));
        table.started(0, 8, late);
        table.ready(8, false);
        CHECK(table.take(worker(5), late).id == 8);
    }
}

TEST_CASE("a standby process whose imports have read its local rank is not spent on another one") {
    StandbyTable table(2);
    for (std::uint32_t local_rank = 0; local_rank < 3; ++local_rank) table.take(worker(local_rank), Instant{});
    table.started(0, 7, Instant{});
    table.ready(7, true);
    table.started(1, 8, Instant{});
    const auto another = table.take(worker(2), Instant{});
    CHECK(another.id == 0);
    CHECK(another.why_not ==
          "the standby process of local rank 0 serves no other one: its imports have read LOCAL_RANK");
    CHECK(table.take(worker(1), Instant{}).id == 0);
    CHECK(table.take(worker(0), Instant{}).id == 7);
}
