#include "launcher/host/environment_probe.h"

#include "tests/support/catch.h"

using namespace muster::launcher;
using Hints = std::vector<std::string>;

TEST_CASE("an option that names only local ranks which are not there is told of") {
    LaunchConfig config;
    config.workers_per_node = 2;
    CHECK(absent_rank_hints(config).empty());
    config.local_ranks_filter = {1, 5};
    config.tee.by_local_rank = {{0, StreamMask::both}, {7, StreamMask::both}};
    CHECK(absent_rank_hints(config).empty());
    config.local_ranks_filter = {2, 5};
    config.tee.by_local_rank = {{7, StreamMask::both}};
    CHECK(absent_rank_hints(config) ==
          Hints{"--tee has no effect: this node has local ranks 0 to 1",
                "--local-ranks-filter hides the output of all workers here: this node has local ranks 0 to 1"});
    config.workers_per_node = 1;
    config.local_ranks_filter = {};
    CHECK(absent_rank_hints(config) == Hints{"--tee has no effect: this node has only local rank 0"});
}
