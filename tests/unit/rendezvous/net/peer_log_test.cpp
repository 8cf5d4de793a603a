#include "rendezvous/net/peer_log.h"

#include <string>
#include <vector>

#include "rendezvous/base/log_listener.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

TEST_CASE("of an hour of refused connections, ten a second, 60 lines are events, and they count the others") {
    std::vector<std::string> events;
    set_log_level(LogLevel::error);  // The log itself is not of interest.
    set_log_listener([&](std::string_view line) { events.emplace_back(line); });
    PeerLog log;
    for (int number = 0; number < 36'000; ++number) log.warn("a connection was refused", Instant{number * 100ms});
    set_log_listener({});
    set_log_level(LogLevel::warning);
    REQUIRE(events.size() == 60);
    CHECK(events.front() == "a connection was refused");
    CHECK(events.back() ==
          "a connection was refused (lines like this since the last event that are in the log alone: 599)");
}
