#include "agent/diagnosis/oom_tally.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

TEST_CASE("a kill explains an end for a minute after it was counted, and once") {
    OomTally tally;
    const Instant start{1h};
    CHECK_FALSE(tally.unexplained(start).has_value());
    tally.begin(7);
    tally.count(9, start);
    CHECK(tally.unexplained(start) == 2);
    tally.explain_one();
    CHECK(tally.unexplained(start + OomTally::fresh) == 1);
    tally.count(10, start + OomTally::fresh);
    CHECK(tally.unexplained(start + OomTally::fresh) == 2);
    CHECK(tally.unexplained(start + OomTally::fresh + 1s) == 1);
    tally.count(10, start + 3h);
    CHECK(tally.unexplained(start + 3h) == 0);
    tally.explain_one();  // somebody's of another group, whom the log named
    tally.count(11, start + 3h);
    CHECK(tally.unexplained(start + 3h) == 1);
    tally.begin(11);
    CHECK(tally.unexplained(start + 3h) == 0);
}

TEST_CASE("a counter that goes away or back counts nothing") {
    OomTally tally;
    const Instant start{1h};
    tally.begin(5);
    tally.count(2, start);
    CHECK(tally.unexplained(start) == 0);
    tally.count({}, start);
    CHECK_FALSE(tally.unexplained(start).has_value());
    tally.count(9, start);  // since when is not known
    CHECK(tally.unexplained(start) == 0);
    tally.count(1'000'000'000, start);
    CHECK(tally.unexplained(start) == 1000);
}
