#include "rendezvous/page/news.h"

#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"
#include "rendezvous/events/goodput_ledger.h"
#include "rendezvous/page/page_files.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;
using nlohmann::json;

namespace {

/// One job "train" of one node, that the tests change.
struct OneJob {
    std::string daemon = R"({"auth":"none"})";
    std::int64_t step = -1;
    std::string node = R"({"host":"gpu07"})";
    bool is_known = true;
    EventStream events{"s"};

    News news() {
        return News({.daemon = [this](Instant) { return daemon; },
                     .jobs =
                         [this](Instant) {
                             JobSummary job;
                             job.id = "train";
                             job.phase = "running";
                             job.nodes["running"] = 1;
                             job.restarts_left = 2;
                             job.step = step;
                             return is_known ? std::vector{job} : std::vector<JobSummary>{};
                         },
                     .job =
                         [this](const std::string& name, Instant, SeenNodes&) {
                             if (is_known && name == "train")
                                 return JobPieces{.job = R"({"id":"train"})", .nodes = {{"7", node}}};
                             return JobPieces{.job = "null", .nodes = {}, .gone = {"7"}};
                         },
                     .events =
                         [this](const std::string& name, const EventPosition& after, std::size_t bytes_max) {
                             return events.after(name, {.sequence = after.sequence, .stream = after.stream}, bytes_max);
                         },
                     .wall_clock_ms = [] { return std::int64_t{1234}; }});
    }
    void happens(const std::string& text) {
        events.add({.kind = EventKind::job_note, .text = text, .job = "train"}, Duration{});
    }
};

using Messages = std::vector<std::pair<std::string, json>>;

Messages messages(const std::string& text) {
    Messages found;
    REQUIRE(text.ends_with("\n\n"));
    for (std::size_t at = 0; at < text.size();) {
        const auto end = text.find("\n\n", at);
        const auto one = text.substr(at, end - at);
        at = end + 2;
        if (one.starts_with(':')) continue;
        const auto data = one.find("\ndata: ");
        REQUIRE(one.starts_with("event: "));
        found.emplace_back(one.substr(7, data - 7), json::parse(one.substr(data + 7)));
    }
    return found;
}

std::vector<std::string> types(const Messages& all) {
    std::vector<std::string> found;
    for (const auto& [type, data] : all) found.push_back(type);
    return found;
}

void look(News& news) {
    news.look_at_jobs(Instant{});
    news.look_at("train", Instant{});
}

}  // namespace

TEST_CASE("a new viewer gets the state, and then a comment until something changes") {
    OneJob job;
    job.happens("joined");
    auto news = job.news();
    News::Seen seen{.job = "train"};
    look(news);
    const auto first = messages(news.next(seen));
    CHECK(types(first) == std::vector<std::string>{"clock", "daemon", "jobs", "job", "nodes", "happened"});
    CHECK(first[0].second["now_ms"] == 1234);
    CHECK(first[2].second["rows"]["train"]["nodes"] == json{{"running", 1}});
    CHECK(first[2].second["rows"]["train"]["restarts_left"] == 2);
    CHECK(first[5].second["data"]["text"] == "joined");
    look(news);
    CHECK(news.next(seen) == ":\n\n");
    job.step = 5;
    look(news);
    const auto later = messages(news.next(seen));
    CHECK(types(later) == std::vector<std::string>{"jobs"});
    CHECK(later[0].second["rows"]["train"]["step"] == 5);
}

TEST_CASE("a viewer that skipped news gets the last state once") {
    OneJob job;
    auto news = job.news();
    News::Seen seen{.job = "train"};
    look(news);
    news.next(seen);
    for (int step = 0; step < 100; ++step) {
        job.step = step;
        job.node = cat("{\"host\":\"gpu07\",\"silent_s\":", step, "}");
        look(news);
    }
    const auto later = messages(news.next(seen));
    CHECK(types(later) == std::vector<std::string>{"jobs", "nodes"});
    CHECK(later[1].second["rows"]["7"]["silent_s"] == 99);
    CHECK(news.next(seen).size() < 10);
}

TEST_CASE("events begin with the newest thousand, or behind the one that the viewer has") {
    OneJob job;
    for (int i = 1; i <= 1'500; ++i) job.happens(cat(i));
    auto news = job.news();
    look(news);
    const auto texts_for = [&](std::optional<EventPosition> after) {
        News::Seen seen{.job = "train", .event = std::move(after)};
        std::vector<std::string> texts;
        for (const auto& [type, data] : messages(news.next(seen)))
            if (type == "happened") texts.push_back(data["data"]["text"]);
        return texts;
    };
    const auto first = texts_for({});
    REQUIRE(first.size() == 1'000);
    CHECK(first.front() == "501");
    CHECK(texts_for(EventPosition{.sequence = 1'498, .stream = "s"}) == std::vector<std::string>{"1499", "1500"});
    // The reader of another daemon's stream is told, and gets all.
    const auto foreign = texts_for(EventPosition{.sequence = 9, .stream = "other"});
    REQUIRE(foreign.size() == 1'501);
    CHECK(foreign.front().find("of another daemon or start") != std::string::npos);
}

TEST_CASE("a job that is unknown is told as such, and one that went takes its nodes along") {
    OneJob job;
    auto news = job.news();
    News::Seen seen{.job = "train"};
    look(news);
    news.next(seen);
    job.is_known = false;
    look(news);
    const auto later = messages(news.next(seen));
    CHECK(types(later) == std::vector<std::string>{"jobs", "job", "nodes"});
    CHECK(later[0].second["gone"] == json{"train"});
    CHECK(later[1].second.is_null());
    CHECK(later[2].second["gone"] == json{"7"});
}

TEST_CASE("the page has a bar for each bucket of a job's time") {
    const auto* charts = find_page_file("/page/charts.js");
    const auto* style = find_page_file("/page/style.css");
    REQUIRE(charts != nullptr);
    REQUIRE(style != nullptr);
    for (std::size_t i = 0; i < fixed_buckets; ++i) {
        const auto bucket = GoodputLedger::Totals().name_of(i);
        CAPTURE(bucket);
        CHECK(charts->bytes.find(cat("['", bucket, "', '")) != std::string_view::npos);
        CHECK(style->bytes.find(cat(".", bucket, " { --bucket")) != std::string_view::npos);
    }
    CHECK(style->bytes.find(".section { --bucket") != std::string_view::npos);
}
