#include "worker_runtime/pairs/search_limits.h"

#include "tests/support/catch.h"

using namespace muster::runtime;

TEST_CASE("the limits of the search are read, or none of them") {
    const auto limits = read_search_limits("clock-ms=1000 link-slow-percent=25 lost-permille=3");
    REQUIRE(limits.has_value());
    CHECK(limits->clock_ms == 1000);
    CHECK(limits->link_slow_percent == 25);
    CHECK(limits->lost_permille == 3);
    for (const auto* wrong :
         {"", "clock-ms=1000 link-slow-percent=25",
          "clock-ms=1000 link-slow-percent=25 lost-permille=", "clock-ms=1000 link-slow-percent=25 lost-permille"}) {
        INFO(wrong);
        CHECK_FALSE(read_search_limits(wrong).has_value());
    }
}

TEST_CASE("a round's text has the limit of losses behind the groups") {
    CHECK(limit_in("10.1.0.0/24 0-3 1-2 lost-permille=7", "lost-permille") == 7);
    CHECK_FALSE(limit_in("0-3 1-2", "lost-permille").has_value());
}
