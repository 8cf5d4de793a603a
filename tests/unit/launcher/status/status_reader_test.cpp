#include "launcher/status/status_reader.h"

#include <nlohmann/json.hpp>
#include <random>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;
using nlohmann::json;

namespace {

json node(std::uint32_t number) {
    return {{"host", cat("gpu", number)}, {"pid", 4711}, {"place", "running"}, {"slots", 8}, {"silent_ms", number},
            {"rank_base", 8 * number}};
}

json page_of(const std::vector<std::vector<std::uint32_t>>& jobs) {
    auto page = json{{"jobs", json::array()}};
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        auto nodes = json::array();
        for (const auto number : jobs[i]) nodes.push_back(node(number));
        page["jobs"].push_back({{"id", cat("job", i)}, {"phase", "running"}, {"nodes", nodes}});
    }
    return page;
}

}  // namespace

TEST_CASE("a page read after others is as if it were read alone") {
    std::mt19937 random(7);
    StatusReader reader;
    std::vector<std::vector<std::uint32_t>> jobs;
    for (int turn = 0; turn < 200; ++turn) {
        // Jobs and nodes come, go and change.
        if (jobs.size() < 3 && random() % 4 == 0) jobs.emplace_back();
        if (!jobs.empty() && random() % 9 == 0) jobs.erase(jobs.begin() + static_cast<int>(random() % jobs.size()));
        for (auto& nodes : jobs) {
            if (random() % 3 == 0) nodes.push_back(static_cast<std::uint32_t>(random() % 50));
            if (!nodes.empty() && random() % 5 == 0) nodes.erase(nodes.begin());
        }
        auto page = page_of(jobs);
        for (auto& job : page["jobs"])
            for (auto& one : job["nodes"]) {
                one["silent_ms"] = random() % 3'000;
                if (random() % 8 == 0) one["connected"] = false;
                if (random() % 8 == 0) one["overdue"] = {{{"rank", 3}, {"place", "a \"nodes\":[{ }] \\"}}};
                if (random() % 20 == 0) one.erase("silent_ms");
            }
        REQUIRE(reader.read(page.dump()).has_value());
        REQUIRE(reader.facts() == read_status_facts(page.dump(1)).value());
    }
}

TEST_CASE("a damaged page leaves the facts of the page before") {
    StatusReader reader;
    const auto page = page_of({{1, 2}}).dump();
    REQUIRE(reader.read(page).has_value());
    const auto before = reader.facts();
    for (std::size_t size = 0; size < page.size(); ++size) {
        REQUIRE_FALSE(reader.read(page.substr(0, size)).has_value());
        REQUIRE(reader.facts() == before);
    }
    std::mt19937 random(11);
    for (int i = 0; i < 1'000; ++i) {
        auto changed = page;
        changed[random() % changed.size()] = static_cast<char>(random());
        if (!reader.read(changed)) continue;
        REQUIRE(reader.read(page).has_value());
        REQUIRE(reader.facts() == before);
    }
}
