#include "rendezvous/page/changing_rows.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

using muster::rendezvous::ChangingRows;
using nlohmann::json;

TEST_CASE("a new reader gets all rows, and one that has them what changed") {
    ChangingRows rows;
    CHECK(rows.version() == 0);
    rows.set({{"a", "1"}, {"b", "2"}});
    const auto first = rows.version();
    CHECK(json::parse(rows.since(0)) == json{{"whole", true}, {"rows", {{"a", 1}, {"b", 2}}}, {"gone", json::array()}});
    rows.set({{"a", "1"}, {"b", "2"}});
    CHECK(rows.version() == first);
    rows.set({{"a", "1"}, {"b", "3"}, {"c", "4"}});
    CHECK(json::parse(rows.since(first)) ==
          json{{"whole", false}, {"rows", {{"b", 3}, {"c", 4}}}, {"gone", json::array()}});
}

TEST_CASE("a reader that skipped changes gets the last of each row, and the keys that went") {
    ChangingRows rows;
    rows.set({{"a", "1"}, {"b", "1"}, {"c", "1"}});
    const auto first = rows.version();
    rows.set({{"b", "2"}});
    const auto second = rows.version();
    rows.set({{"b", "3"}, {"c", "9"}});
    // c went and came back.
    CHECK(json::parse(rows.since(first)) == json{{"whole", false}, {"rows", {{"b", 3}, {"c", 9}}}, {"gone", {"a"}}});
    CHECK(json::parse(rows.since(second)) ==
          json{{"whole", false}, {"rows", {{"b", 3}, {"c", 9}}}, {"gone", json::array()}});
}

TEST_CASE("an empty list is a first version, so that a reader knows that there is nothing") {
    ChangingRows rows;
    rows.set({});
    CHECK(rows.version() == 1);
    CHECK(json::parse(rows.since(0)) == json{{"whole", true}, {"rows", json::object()}, {"gone", json::array()}});
}

TEST_CASE("a reader that is behind by more removed rows than are remembered gets all rows") {
    ChangingRows rows;
    rows.set({{"stays", "1"}});
    const auto before = rows.version();
    for (int i = 0; i < 1'100; ++i) {
        rows.set({{"stays", "1"}, {"k" + std::to_string(i), "1"}});
    }
    const auto behind = json::parse(rows.since(before));
    CHECK(behind["whole"] == true);
    CHECK(behind["rows"].size() == 2);
    CHECK(json::parse(rows.since(rows.version() - 10))["whole"] == false);
    CHECK(rows.since(rows.version() - 10).size() < 500);
}

TEST_CASE("keys are JSON texts whatever they are made of") {
    ChangingRows rows;
    rows.set({{"</script>\"\\\n\xff", "{}"}});
    const auto text = rows.since(0);
    CHECK(text.find('\n') == text.npos);
    CHECK(json::parse(text)["rows"].size() == 1);
}

TEST_CASE("only what changed is told of, and rows that nobody names stay") {
    ChangingRows rows;
    rows.change({{"a", "1"}, {"b", "1"}, {"c", "1"}}, {});
    const auto first = rows.version();
    rows.change({{"a", "1"}}, {"x"});
    CHECK(rows.version() == first);
    rows.change({{"b", "2"}}, {"c"});
    CHECK(json::parse(rows.since(first)) == json{{"whole", false}, {"rows", {{"b", 2}}}, {"gone", {"c"}}});
    CHECK(json::parse(rows.since(0)) == json{{"whole", true}, {"rows", {{"a", 1}, {"b", 2}}}, {"gone", json::array()}});
}
