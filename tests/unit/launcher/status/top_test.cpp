#include "launcher/status/top.h"

#include <nlohmann/json.hpp>

#include "launcher/status/text_columns.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;
using nlohmann::json;

namespace {

constexpr Instant begin{};
constexpr StatusSize usual{80, 24};

json node(int number, const std::string& place = "running") {
    return {{"host", cat("gpu", number)}, {"pid", 4711},      {"place", place},       {"slots", 8},
            {"connected", true},          {"silent_ms", 400}, {"group_rank", number}, {"rank_base", 8 * number}};
}

json job(const std::string& id, const json& nodes, std::int64_t step = 1200) {
    return {{"id", id},          {"phase", "running"},
            {"round", 3},        {"restarts_used", 1},
            {"restarts_max", 3}, {"nodes_min", 2},
            {"nodes_max", 2},    {"step", step},
            {"waiting_for", ""}, {"goodput", {{"text", "92.4 % of 192 min trained"}}},
            {"nodes", nodes}};
}

std::string page(const std::vector<json>& jobs) {
    return json{{"jobs", jobs}}.dump();
}

std::string text(const Screen& screen) {
    std::string all;
    for (std::size_t row = 0; row < screen.size().rows; ++row) all += cat(screen.text(row), "\n");
    return all.substr(0, all.find_last_not_of('\n') + 1);
}

struct Person {
    explicit Person(const std::string& job = {}) : top("gpu00:29400", job, begin) {}
    void see(const std::string& page_text) { top.take(page_text, now); }
    bool press(Key key) { return top.press(key, size, now); }
    bool type(std::string_view keys) {
        bool stays = true;
        for (const char key : keys) stays = press({.text = std::string(1, key)});
        return stays;
    }
    std::string screen() { return text(top.screen(size, now)); }

    Top top;
    Instant now = begin;
    StatusSize size = usual;
};

json trouble() {
    auto lost = node(2, "lost");
    lost["connected"] = false;
    auto late = node(1);
    late["overdue"] = {
        {{"rank", 12}, {"idle_ms", 42'000}, {"operation", "all_reduce 40"}, {"place", "load (data.py:31)"}}};
    for (const int rank : {8, 9, 10, 11, 13})
        late["waiting"].push_back({{"rank", rank}, {"idle_ms", 40'000}, {"operation", "all_reduce 41"}, {"place", ""}});
    return json::array({node(0), late, lost});
}

}  // namespace

TEST_CASE("one job is shown with what is wrong first, and its nodes in that order") {
    Person person;
    CHECK(person.screen().starts_with("asking gpu00:29400 ...\n"));
    person.see(page({job("train", trouble())}));
    CHECK(person.screen() ==
          "job train: running, round 3, 2 of 2 nodes, step 1200, 1/3 restarts used\n"
          "time: 92.4 % of 192 min trained\n"
          "rank 12 on gpu1 is missing in load (data.py:31), idle for 42 s, after all_red...\n"
          "ranks 8-11,13 wait in all_reduce 41\n"
          "  NODE                             PID      PLACE      RANKS        HEARD\n"
          ">!gpu2                             4711     lost       16-23        no link\n"
          " !gpu1                             4711     running    8-15         0 s ago\n"
          "  gpu0                             4711     running    0-7          0 s ago" +
              std::string(16, '\n') + "1-3 of 3  q quit  ? help  enter open  / filter  s by trouble  l logs  e events");
}

TEST_CASE("the speed is in the second line, and a job that stands is told") {
    Person person;
    for (const auto step : {100, 200, 300}) {
        person.see(page({job("train", trouble(), step)}));
        person.now += 10s;
    }
    CHECK_THAT(person.screen(), Catch::Contains("restarts used\nspeed: 10 steps/s\ntime:"));
    person.now += 20s;
    person.see(page({job("train", trouble(), 300)}));
    CHECK_THAT(person.screen(), Catch::Contains("speed: 4 steps/s; no new step for 30 s\n"));
}

TEST_CASE("a job of long steps stands only after the time of three of them") {
    Person person;
    const auto see = [&person](std::int64_t step, Duration later) {
        person.now += later;
        person.see(page({job("train", trouble(), step)}));
        return person.screen();
    };
    for (const auto step : {100, 101, 102, 103}) see(step, 40s);
    CHECK_THAT(see(103, 110s), !Catch::Contains("no new step"));
    CHECK_THAT(see(103, 20s), Catch::Contains("; no new step for 130 s\n"));
}

TEST_CASE("keys lead from jobs to nodes and back") {
    Person person;
    person.see(page({job("eval", json::array({node(7)})), job("train", trouble())}));
    CHECK(person.screen().starts_with("2 jobs at gpu00:29400\n  JOB"));
    CHECK_THAT(person.screen(), Catch::Contains("\n>!train") && Catch::Contains("\n  eval"));
    person.press({KeyKind::enter});
    CHECK(person.screen().starts_with("job train: running"));
    CHECK_THAT(person.screen(), Catch::Contains("\n>!gpu2"));
    person.press({KeyKind::down});
    CHECK_THAT(person.screen(), Catch::Contains("\n>!gpu1"));
    person.press({KeyKind::enter});
    CHECK(
        person.screen().starts_with("node gpu1 (pid 4711) of job train\n"
                                    "place: running\n"
                                    "group rank: 1, ranks: 8-15 (8 in all)\n"
                                    "heard: 0 s ago\n"
                                    "rank 12 on gpu1 is missing in load (data.py:31), idle for 42 s, after all_reduce\n"
                                    "  40\n"
                                    "ranks 8-11,13 wait in all_reduce 41\n"));
    person.see(page({job("eval", json::array()), job("train", json::array({node(0)}))}));
    CHECK(person.screen().starts_with("node gpu1 (pid 4711) has left job train\n"));
    person.press({KeyKind::escape});
    CHECK(person.screen().starts_with("job train: running"));
    person.press({KeyKind::escape});
    CHECK_THAT(person.screen(), Catch::Contains("2 jobs at gpu00:29400\n") && Catch::Contains("\n> train"));
    person.press({KeyKind::escape});
    CHECK(person.type("x"));
    CHECK_FALSE(person.type("q"));
}

TEST_CASE("of many jobs those in trouble come first, and the others keep their order") {
    Person person;
    std::vector<json> jobs;
    for (int i = 10; i < 60; ++i) jobs.push_back(job(cat("job", i), i == 45 || i == 57 ? trouble() : json::array()));
    person.see(page(jobs));
    const auto screen = person.screen();
    std::vector<std::string> ids;
    for (const auto line : split(screen, '\n')) ids.emplace_back(line.substr(0, 7));
    CHECK(std::vector(ids.begin() + 2, ids.begin() + 6) ==
          std::vector<std::string>{">!job45", " !job57", "  job10", "  job11"});
}

TEST_CASE("a node shows how busy each of its GPUs is, where that is known") {
    Person person;
    auto one = node(0);
    one["gpus"] = json::parse(R"([{"index":0,"busy_percent":97},{"index":3,"busy_percent":8}])");
    person.see(page({job("train", json::array({one}))}));
    person.press({KeyKind::enter});
    CHECK_THAT(person.screen(), Catch::Contains("heard: 0 s ago\nGPU use in %: 0: 97, 3: 8\n"));
    // All of a large node, at the width of a small terminal.
    one["gpus"] = json::array();
    for (int i = 10; i < 26; ++i) one["gpus"].push_back({{"index", i}, {"busy_percent", 100}});
    person.see(page({job("train", json::array({one}))}));
    CHECK_THAT(person.screen(),
               Catch::Contains("\nGPU use in %: 10: 100, 11: 100, 12: 100, 13: 100, 14: 100, 15: 100, 16: 100\n"
                               "  17: 100, 18: 100, 19: 100, 20: 100, 21: 100, 22: 100, 23: 100\n"
                               "  24: 100, 25: 100\n"));
}

TEST_CASE("esc shows the list of jobs, even of a single job") {
    Person person;
    person.see(page({job("train", trouble())}));
    person.press({KeyKind::escape});
    CHECK(person.screen().starts_with("1 job at gpu00:29400\n"));
    person.press({KeyKind::enter});
    CHECK(person.screen().starts_with("job train"));
}

TEST_CASE("the filter shows some rows, and esc shows all again") {
    Person person;
    auto nodes = json::array();
    for (int i = 0; i < 100; ++i) nodes.push_back(node(i));
    person.see(page({job("train", nodes)}));
    person.type("/GPU9q");
    CHECK_THAT(person.screen(), Catch::Contains("\n/GPU9q_"));
    person.press({KeyKind::backspace});
    person.press({KeyKind::enter});
    CHECK_THAT(person.screen(), Catch::Contains("\n1-11 of 11 with 'GPU9' (esc: all 100)  q quit") &&
                                    Catch::Contains("\n> gpu9 ") && !Catch::Contains("\n  gpu8 "));
    person.press({KeyKind::escape});
    CHECK_THAT(person.screen(), Catch::Contains("1-20 of 100"));
    person.type("/\xC3\xBC");
    for (int i = 0; i < 3; ++i) person.press({KeyKind::backspace});
    person.press({KeyKind::escape});
    CHECK(person.screen().starts_with("job train"));
}

TEST_CASE("the selection stays on its node, whatever the order") {
    Person person;
    auto nodes = json::array();
    for (int i = 0; i < 100; ++i) nodes.push_back(node(i));
    person.see(page({job("train", nodes)}));
    person.type("G");
    CHECK_THAT(person.screen(), Catch::Contains("\n> gpu99") && Catch::Contains("81-100 of 100"));
    person.press({KeyKind::page_up});
    CHECK_THAT(person.screen(), Catch::Contains("\n> gpu79") && Catch::Contains("61-80 of 100"));
    nodes[79]["place"] = "lost";
    person.see(page({job("train", nodes)}));
    CHECK_THAT(person.screen(), Catch::Contains("HEARD\n>!gpu79"));
    person.type("ss");  // by host
    CHECK_THAT(person.screen(), Catch::Contains("by host") && Catch::Contains("\n>!gpu79"));
    person.type("gr");
    CHECK_THAT(person.screen(), Catch::Contains("\n> gpu0 ") && Catch::Contains("by host, reversed"));
    nodes.erase(nodes.begin());  // The selected one is gone: what stands in its place is selected.
    person.see(page({job("train", nodes)}));
    CHECK_THAT(person.screen(), Catch::Contains("\n> gpu1"));
    for (int i = 0; i < 200; ++i) person.type("k");
    CHECK_THAT(person.screen(), Catch::Contains("HEARD\n> gpu99"));
}

TEST_CASE("l asks for the logs of what is selected or shown, once, e for its events, and p for a node's stacks") {
    Person person;
    const auto wants = [&person](std::vector<std::string> words) { return person.top.take_command() == words; };
    person.type("l");
    CHECK(wants({}));  // Nothing is known yet.
    person.see(page({job("eval", json::array()), job("train", trouble())}));
    person.type("l");
    CHECK(wants({"logs", "--follow", "--last=200", "--job=train"}));
    CHECK(wants({}));
    person.type("p");
    CHECK(wants({}));  // Not of a whole job.
    person.press({KeyKind::enter});
    person.type("jl");
    CHECK(wants({"logs", "--follow", "--last=200", "--job=train", "--node=gpu1"}));
    person.press({KeyKind::enter});
    person.type("l");
    CHECK(wants({"logs", "--follow", "--last=200", "--job=train", "--node=gpu1"}));
    person.type("e");
    CHECK(wants({"status", "--events", "--job=train", "--node=gpu1"}));
    person.type("p");
    CHECK(wants({"logs", "--stacks", "--job=train", "--node=gpu1"}));
    person.press({KeyKind::escape});
    person.type("/none");
    person.press({KeyKind::enter});
    person.type("l");
    CHECK(wants({}));  // Nothing is selected: not the whole job either.
    person.see(page({}));
    person.type("l");
    CHECK(wants({}));
}

TEST_CASE("help is closed by any key, and every key of it does something") {
    Person person;
    person.see(page({job("train", trouble())}));
    person.type("h");
    CHECK(person.screen().starts_with("muster top: "));
    CHECK_THAT(person.screen(), !Catch::Contains("..."));  // Nothing is cut off.
    CHECK(person.type("q"));
    CHECK(person.screen().starts_with("job train"));
}

TEST_CASE("a daemon that is away is told with the time, over what was known before") {
    Person person;
    person.top.take(Error{Errc::unreachable, "connection refused"}, begin + 3s);
    person.now += 3s;
    CHECK(person.screen().starts_with("no answer from gpu00:29400 for 3 s: connection refused\n"));
    person.see(page({job("train", trouble())}));
    CHECK(person.screen().starts_with("job train"));
    person.now += 65s;
    person.top.take(Error{Errc::unreachable, "connection refused"}, person.now);
    CHECK(person.screen().starts_with("no answer from gpu00:29400 for 65 s: connection refused\njob train"));
    person.top.take(std::string("<html>"), person.now);
    CHECK_THAT(person.screen(), Catch::Contains("for 65 s: the answer is not a status page"));
    person.see(page({}));
    CHECK(person.screen().starts_with("no jobs at gpu00:29400\n"));
}

TEST_CASE("a job that is not there is told with those that are, and is shown when it comes") {
    Person person("train");
    person.see(page({job("eval", json::array()), job("probe", json::array())}));
    CHECK(person.screen().starts_with("no job 'train'; jobs: eval, probe; esc: all jobs\n  JOB"));
    person.see(page({job("train", trouble())}));
    CHECK(person.screen().starts_with("job train"));
}

TEST_CASE("every size holds, with hostile names, and keeps the first line and the worst node") {
    auto nodes = json::array();
    for (int i = 0; i < 500; ++i) {
        auto one = node(i);
        one["host"] = cat("gpu", i, "-\xE6\xBC\xA2\xE5\xAD\x97\x1b[31m");
        one["overdue"] = {{{"rank", 8 * i}, {"idle_ms", 1}, {"operation", "\x1b]0;x\x07"}, {"place", "\r\n"}}};
        nodes.push_back(one);
    }
    Person person;
    person.see(page({job(std::string(300, 'j'), nodes)}));
    for (std::size_t columns : {0, 1, 2, 3, 10, 20, 40, 79, 80, 300})
        for (std::size_t rows : {0, 1, 2, 3, 4, 5, 6, 7, 10, 24, 60}) {
            person.size = {columns, rows};
            for (const char* key : {"", "j", "?", "x", "/", "z"}) {
                if (*key != '\0') person.type(key);
                const auto screen = person.top.screen(person.size, person.now);
                REQUIRE(screen.size() == person.size);
                for (std::size_t row = 0; row < rows; ++row) {
                    REQUIRE(columns_of(screen.text(row)) <= columns);
                    REQUIRE(screen.text(row).find_first_of("\x1b\x07\r\n") == std::string::npos);
                }
            }
            person.press({KeyKind::escape});
        }
    person.size = {40, 3};
    CHECK(person.screen().starts_with("job jjj"));
    CHECK_THAT(person.screen(), Catch::Contains("\n>!gpu"));
}

TEST_CASE("in steady state a large job costs less than 4 KiB/s on a large terminal") {
    auto nodes = json::array();
    for (int i = 0; i < 2'000; ++i) nodes.push_back(node(i));
    Person person;
    person.size = {200, 60};
    Screen before;
    std::size_t bytes = 0;
    constexpr int seconds = 5;
    for (int second = 0; second <= seconds; ++second) {
        for (auto& one : nodes) one["silent_ms"] = (second * 1'000 + one["group_rank"].get<int>() * 37) % 2'500;
        person.see(page({job("train", nodes, 1'000 + second)}));
        auto after = person.top.screen(person.size, person.now);
        const auto update = screen_update(before, after, true);
        if (second > 0) bytes += update.size();
        before = std::move(after);
        person.now += 1s;
    }
    CHECK(bytes / seconds > 0);
    CHECK(bytes / seconds < 4'096);
}
