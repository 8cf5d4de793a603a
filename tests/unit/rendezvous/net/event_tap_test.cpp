#include "rendezvous/dialects/event_tap.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rendezvous/base/text/utc.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

TEST_CASE("an event has the wall clock of the moment in which it happened") {
    std::vector<std::string> lines;
    EventTap tap([&lines](std::string_view line) { lines.emplace_back(line); });
    const auto hour_ago = [] {
        const auto since_1970 = std::chrono::system_clock::now().time_since_epoch() - 1h;
        return utc_text(std::chrono::floor<std::chrono::seconds>(since_1970), "%Y-%m-%dT%H:%M:%S");
    };
    const auto first = hour_ago();
    tap.take({{.kind = EventKind::job_note, .text = "it happened", .job = "train"}},
             std::chrono::steady_clock::now() - 1h);
    const auto last = hour_ago();
    REQUIRE(lines.size() == 1);
    const auto time = nlohmann::json::parse(lines[0])["time"].get<std::string>().substr(0, first.size());
    CHECK(time >= first);
    CHECK(time <= last);
}
