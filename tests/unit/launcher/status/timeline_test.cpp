#include "launcher/status/timeline.h"

#include <chrono>

#include "launcher/status/timeline_svg.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;
using Phase = Timeline::Phase;

namespace {

/// One event, `second` seconds after 18:00.
std::string event(int second, std::string_view type, std::string_view data = "") {
    const auto two = [](int number) { return cat(number < 10 ? "0" : "", number); };
    return cat("{\"specversion\":\"1.0\",\"id\":\"a/1\",\"type\":\"muster.", type,
               ".v1\",\"time\":\"2026-11-23T18:", two(second / 60), ":", two(second % 60),
               ".500000Z\",\"data\":{\"job\":\"j\",\"text\":\"", type, " told\"", data, "}}\n");
}

Duration at(int second) {
    using namespace std::chrono;
    return sys_days(2026y / November / 23).time_since_epoch() + hours(18) + seconds(second) + milliseconds(500);
}

std::string story_of_a_failure() {
    return event(0, "job.started") + event(1, "node.joined") + event(10, "round.sealed", ",\"round\":0") +
           event(20, "round.stepping", ",\"round\":0,\"step\":3,\"first_step\":1") +
           event(30, "round.progress", ",\"round\":0,\"step\":101") +
           event(35, "checkpoint.committed", ",\"round\":0,\"checkpoint_step\":100") +
           event(40, "hang.suspected", ",\"round\":0,\"step\":150,\"hung_ms\":6000") +
           event(50, "hang.over", ",\"round\":0,\"step\":151") + event(60, "worker.failed", ",\"round\":0,\"rank\":3") +
           event(60, "round.ended", ",\"round\":0,\"reason\":\"worker_failed\",\"step\":251,\"detecting_ms\":4000") +
           event(61, "round.drained", ",\"round\":0") + event(62, "round.sealed", ",\"round\":1") +
           event(90, "round.ended", ",\"round\":1,\"reason\":\"node_lost\"") + event(90, "node.lost", ",\"round\":1");
}

}  // namespace

TEST_CASE("a job's events become spans without gaps, marks and steps") {
    const auto line = read_timeline(story_of_a_failure(), at(100)).value();
    std::string spans;
    auto end = line.from;
    for (const auto& span : line.spans) {
        CHECK(span.from == end);
        end = span.to;
        spans += cat(name(span.phase), " ", std::chrono::duration<double>(span.to - span.from).count(), ", ");
    }
    CHECK(spans ==
          "waiting for nodes 10, starting 10, stepping 14, hung 16, stepping 6, a failure not yet known 4, stopping 1, "
          "waiting for nodes 1, no steps reported 28, stopping 10, ");
    CHECK(line.from == at(0));
    CHECK(line.to == at(100));
    CHECK_FALSE(line.is_over);
    CHECK_FALSE(line.begins_late);
    CHECK(line.spans[1].text == "round.sealed told");
    REQUIRE(line.marks.size() == 3);
    CHECK(line.marks[0].kind == Timeline::MarkKind::checkpoint);
    CHECK(line.marks[2].at == at(90));
    REQUIRE(line.progress.size() == 5);
    CHECK(line.progress.front().step == 1);
    CHECK(line.progress.back().step == 251);
}

TEST_CASE("a hang before the first steps makes no steps when it is over, and is hung where it is not") {
    const auto phases = [](const std::string& rest) {
        const auto line = read_timeline(event(0, "round.sealed") + event(1, "hang.suspected") + rest, at(50)).value();
        std::string all;
        for (const auto& span : line.spans) all += cat(name(span.phase), ", ");
        return all;
    };
    CHECK(phases(event(2, "hang.over")) == "waiting for nodes, starting, ");
    CHECK(phases(event(2, "round.stepping") + event(3, "hang.over")) ==
          "waiting for nodes, starting, hung, stepping, ");
    CHECK(phases(event(2, "hang.over") + event(3, "round.stepping")) == "waiting for nodes, starting, stepping, ");
}

TEST_CASE("of a job that was started again the last run counts, and its end is the end") {
    const auto line = read_timeline(story_of_a_failure() + event(95, "job.ended") + event(100, "job.started") +
                                        event(101, "round.sealed", ",\"round\":7") + event(105, "job.ended"),
                                    at(999))
                          .value();
    CHECK(line.from == at(100));
    CHECK(line.to == at(105));
    CHECK(line.is_over);
    CHECK(line.spans.size() == 2);
    CHECK(line.marks.empty());
}

TEST_CASE("events whose beginning is no longer kept, or whose clock was set back, are a timeline too") {
    const auto line = read_timeline(event(50, "events.dropped") + event(60, "round.ended", ",\"round\":4") +
                                        event(30, "round.drained") + event(70, "worker.failed"),
                                    at(10))
                          .value();
    CHECK(line.begins_late);
    CHECK(line.from == at(60));
    CHECK(line.to == at(60));
    CHECK(line.marks.size() == 1);
}

TEST_CASE("what is no event is named by its line, and no event at all is an error") {
    CHECK(read_timeline("", at(0)).error().context == "the daemon keeps no events of this job");
    for (const std::string wrong : {"{", "[]", "{\"type\":\"x\",\"data\":{}}", "{\"data\":7}"}) {
        const auto read = read_timeline(event(1, "job.started") + wrong + "\n", at(9));
        INFO(wrong);
        CHECK(read.error().context == "line 2 of the answer is not an event of muster");
    }
    auto clock = event(1, "job.started");
    clock.replace(clock.find("18:"), 3, "1x:");
    CHECK(read_timeline(clock, at(9)).has_error());
}

TEST_CASE("the picture has each span, mark and rate, and names escaped") {
    const auto line = read_timeline(story_of_a_failure(), at(100)).value();
    const auto picture = timeline_svg(line, "a<b>", "75 % of 100 s trained");
    INFO(picture);
    CHECK(picture.find("job a&lt;b&gt;, 2026-11-23 UTC, still running") != std::string::npos);
    CHECK(picture.find("75 % of 100 s trained") != std::string::npos);
    CHECK(picture.find("round 0, hung for 16 s: hang.suspected told") != std::string::npos);
    CHECK(picture.find("round 0, a failure not yet known for 4 s: round.ended told") != std::string::npos);
    CHECK(picture.find("18:01:00 worker.failed told") != std::string::npos);
    CHECK(picture.find(">18:00:30</text>") != std::string::npos);
    CHECK(picture.find(">10</text>") != std::string::npos);  // steps/s, the top of the chart
    CHECK(picture.find("reported no steps (") == std::string::npos);
    const auto without = timeline_svg(read_timeline(event(1, "job.started"), at(1)).value(), "j", "");
    CHECK(without.find("the program has reported no steps") != std::string::npos);
}
