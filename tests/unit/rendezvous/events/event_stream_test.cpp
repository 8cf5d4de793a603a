#include "rendezvous/events/event_stream.h"

#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using nlohmann::json;

namespace {

constexpr Duration some_time = std::chrono::seconds(1'763'920'931) + 482'113us;

Event sealed(const std::string& job, std::string text = "round 3 sealed with 16 nodes") {
    Event event{.kind = EventKind::round_sealed, .text = std::move(text), .job = job, .round = 3};
    event.facts.node_count = 16;
    return event;
}

std::vector<json> lines_in(const std::string& text) {
    std::vector<json> lines;
    for (const auto line : split(text, '\n'))
        if (!line.empty()) lines.push_back(json::parse(line));
    return lines;
}

std::vector<std::string> sequences(const std::string& text) {
    std::vector<std::string> found;
    for (const auto& line : lines_in(text)) found.push_back(line["sequence"]);
    return found;
}

}  // namespace

TEST_CASE("an event is one line, a CloudEvent with its facts as data") {
    EventStream stream("7f3a");
    const auto line = stream.add(sealed("train"), some_time);
    CHECK(line == R"({"specversion":"1.0","id":"7f3a/1","source":"muster:/job/train","type":"muster.round.sealed.v1",)"
                  R"("time":"2025-11-23T18:02:11.482113Z","subject":"round/3","sequence":"00000000001",)"
                  R"("datacontenttype":"application/json",)"
                  R"("data":{"job":"train","round":3,"nodes":16,"text":"round 3 sealed with 16 nodes"}})"
                  "\n");
}

TEST_CASE("the source of a launcher's event names its host, and a subject the rank before the node") {
    EventStream stream("7f3a", "gpu07");
    Event event{.kind = EventKind::worker_failed, .text = "it failed", .job = "train", .round = 0};
    event.facts = {.host = "gpu07", .pid = 42, .rank = 5, .local_rank = 1, .kind = "killed", .cause = "out_of_memory"};
    const auto line = json::parse(stream.add(event, some_time));
    CHECK(line["source"] == "muster:/job/train/node/gpu07");
    CHECK(line["subject"] == "rank/5");
    CHECK(line["data"] == json{{"job", "train"},
                               {"round", 0},
                               {"host", "gpu07"},
                               {"pid", 42},
                               {"rank", 5},
                               {"local_rank", 1},
                               {"kind", "killed"},
                               {"cause", "out_of_memory"},
                               {"text", "it failed"}});
}

TEST_CASE("any byte may be in a job's name and in a sentence, and the line stays one line of JSON") {
    EventStream stream("7f3a");
    const std::string hostile("a/b \"c\"\n\\\xff\x00z", 12);
    const auto line = stream.add(sealed(hostile, hostile), some_time);
    CHECK(std::count(line.begin(), line.end(), '\n') == 1);
    const auto read = json::parse(line);
    CHECK(read["source"] == "muster:/job/a%2Fb%20%22c%22%0A%5C%FF%00z");
    CHECK(read["data"]["text"].get<std::string>().starts_with("a/b \"c\"\n\\\xEF\xBF\xBD"));
}

TEST_CASE("each byte alone is in a line what the JSON library makes of it") {
    EventStream stream("7f3a");
    for (int byte = 0; byte < 256; ++byte) {
        INFO("byte " << byte);
        const std::string one(1, static_cast<char>(byte));
        auto event = sealed(one, one);
        event.facts.host = event.facts.reason = one;
        const auto data = json::parse(stream.add(event, some_time))["data"];
        const auto expected = json::parse(json(one).dump(-1, ' ', false, json::error_handler_t::replace));
        for (const char* member : {"job", "host", "reason", "text"}) CHECK(data[member] == expected);
    }
}

TEST_CASE("each job counts for itself, and a reader continues behind what it has") {
    EventStream stream("s");
    for (int i = 0; i < 3; ++i) {
        stream.add(sealed("a"), some_time);
        stream.add(sealed("b"), some_time);
    }
    CHECK(sequences(stream.after("a", {0}, 1 << 20)->lines) ==
          std::vector<std::string>{"00000000001", "00000000002", "00000000003"});
    const auto page = stream.after("a", {2}, 1 << 20);
    CHECK(sequences(page->lines) == std::vector<std::string>{"00000000003"});
    CHECK(page->last == 3);
    CHECK(stream.after("a", {3}, 1 << 20)->lines.empty());
    CHECK_FALSE(stream.after("c", {0}, 1 << 20));
}

TEST_CASE("a reader with a number of another process's stream gets everything") {
    EventStream stream("s");
    stream.add(sealed("a"), some_time);
    CHECK(sequences(stream.after("a", {4'711}, 1 << 20)->lines) == std::vector<std::string>{"00000000001"});
}

TEST_CASE("a reader with an id of another stream gets everything, behind a record of the gap") {
    EventStream stream("s");
    for (int i = 0; i < 3; ++i) stream.add(sealed("a"), some_time);
    const auto lines = lines_in(stream.after("a", {2, "old"}, 1 << 20)->lines);
    REQUIRE(lines.size() == 4);
    CHECK(lines[0]["type"] == "muster.events.dropped.v1");
    CHECK(lines[0]["data"]["text"] == "events after old/2 are of another daemon or start, and are not kept here");
    CHECK(lines[0]["id"] == "s-after-old/2/0");
    CHECK(lines[1]["id"] == "s/1");
    CHECK(sequences(stream.after("a", {2, "s"}, 1 << 20)->lines) == std::vector<std::string>{"00000000003"});
}

TEST_CASE("a page has whole lines up to its size, and at least one") {
    EventStream stream("s");
    const auto size = stream.add(sealed("a"), some_time).size();
    for (int i = 0; i < 9; ++i) stream.add(sealed("a"), some_time);
    CHECK(stream.after("a", {0}, 1)->last == 1);
    CHECK(stream.after("a", {0}, 3 * size)->last == 3);
    CHECK(stream.after("a", {0}, 3 * size)->newest == 10);
}

TEST_CASE("what is no longer kept is told by a record with the number of events") {
    EventStream stream("s", {}, {.job_events_max = 4});
    for (int i = 0; i < 10; ++i) stream.add(sealed("a"), some_time);
    const auto page = stream.after("a", {2}, 1 << 20);
    const auto lines = lines_in(page->lines);
    REQUIRE(lines.size() == 5);
    CHECK(lines[0]["type"] == "muster.events.dropped.v1");
    CHECK(lines[0]["data"]["dropped"] == 4);
    CHECK(lines[0]["id"] == "s-after-2/6");
    CHECK(lines[0]["data"]["text"] == "events 3 to 6 are no longer kept");
    CHECK(lines[1]["sequence"] == "00000000007");
    CHECK(page->last == 10);
}

TEST_CASE("the bytes of a job, the bytes of all jobs and the jobs have a limit") {
    EventStream small("s", {}, {.job_bytes_max = 2'000});
    for (int i = 0; i < 100; ++i) small.add(sealed("a", std::string(300, 'x')), some_time);
    CHECK(small.kept_bytes() <= 2'000);
    CHECK(small.after("a", {0}, 1 << 20)->newest == 100);
    small.add(sealed("a", std::string(5'000, 'x')), some_time);
    CHECK(lines_in(small.after("a", {100}, 1)->lines).size() == 1);  // a line beyond the limit is kept alone

    EventStream all("s", {}, {.bytes_max = 4'000});
    for (int i = 0; i < 100; ++i) all.add(sealed(cat("job-", i)), some_time);
    CHECK(all.kept_bytes() <= 4'000);
    // The job keeps its number: a reader sees the gap, and no id comes twice.
    CHECK(lines_in(all.after("job-0", {0}, 1)->lines)[0]["data"]["dropped"] == 1);
    CHECK(json::parse(all.add(sealed("job-0"), some_time))["id"] == "s/2");
    CHECK(all.after("job-99", {0}, 1));

    EventStream few("s", {}, {.jobs_max = 3});
    for (const char* job : {"a", "b", "c", "a", "d"}) few.add(sealed(job), some_time);
    CHECK(few.after("a", {0}, 1)->newest == 2);  // "b" was written to least recently
    CHECK_FALSE(few.after("b", {0}, 1));
    CHECK(json::parse(few.add(sealed("b"), some_time))["id"] == "s/2");  // No id comes twice.
}
