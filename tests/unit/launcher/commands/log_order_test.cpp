#include "launcher/commands/log_order.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr std::int64_t hour = 3'600'000 * ms;
constexpr std::int64_t day_begin = 1'764'000'000'000 * ms;

/// Nodes whose clocks are wrong, and a viewer who asks what may be shown.
struct Story {
    LogOrder order{2s};
    Instant now{};
    std::vector<std::int64_t> ahead;

    LogOrder::NodeId node(std::int64_t ahead_ns) {
        const auto id = order.add_node();
        ahead.push_back(ahead_ns);
        return id;
    }
    void greet(LogOrder::NodeId id, std::int64_t error_ns = 0) { order.set_clock(id, ahead[id] + error_ns); }
    /// Written at that time by the true clock.
    void writes(LogOrder::NodeId id, std::int64_t at_ms, const std::string& text) {
        agent::LogLine line;
        line.text = text;
        line.time_ns = day_begin + at_ms * ms + ahead[id];
        order.add(id, 0, std::move(line), now);
    }
    void has_come_to(LogOrder::NodeId id, std::int64_t at_ms) {
        order.reached(id, day_begin + at_ms * ms + ahead[id], now);
    }
    std::string shown() {
        std::string all;
        while (auto line = order.next(now)) all += (line->is_late ? "~" : "") + line->line.text + " ";
        return all;
    }
};

}  // namespace

TEST_CASE("lines of hosts whose clocks are wrong by an hour come in the order in which they were written") {
    Story story;
    const auto early = story.node(-hour), late = story.node(hour), right = story.node(0);
    for (const auto id : {early, late, right}) story.greet(id);
    for (int i = 0; i < 30; ++i) story.writes(static_cast<LogOrder::NodeId>(i % 3), i * 10, std::to_string(i));
    for (const auto id : {early, late, right}) story.order.end(id);
    std::string expected;
    for (int i = 0; i < 30; ++i) expected += std::to_string(i) + " ";
    CHECK(story.shown() == expected);
}

TEST_CASE("a line waits until the other nodes have come as far, and no longer than the patience") {
    Story story;
    const auto one = story.node(0), other = story.node(hour);
    story.greet(one);
    story.greet(other);
    story.writes(one, 100, "a");
    CHECK(story.shown().empty());
    CHECK(story.order.due() == Instant(2s));
    story.has_come_to(other, 99);
    CHECK(story.shown().empty());
    story.has_come_to(other, 100);
    CHECK(story.shown() == "a ");

    story.writes(one, 200, "b");
    story.now = Instant(1'999ms);
    CHECK(story.shown().empty());
    story.now = Instant(2s);
    CHECK(story.shown() == "b ");
    story.writes(other, 150, "c");
    story.has_come_to(one, 300);
    CHECK(story.shown() == "~c ");
}

TEST_CASE("a viewer that was busy for long takes no node for slow that it has just heard") {
    Story story;
    const auto one = story.node(0), other = story.node(0);
    story.greet(one);
    story.greet(other);
    story.writes(one, 100, "a");
    story.writes(one, 120, "c");
    story.writes(other, 90, "b");
    story.now = Instant(10s);
    CHECK(story.shown() == "b ");
    CHECK(story.order.due() == Instant(12s));
    story.writes(other, 110, "d");
    CHECK(story.shown() == "a d ");
    story.now = Instant(11'999ms);
    CHECK(story.shown().empty());
    story.now = Instant(12s);
    CHECK(story.shown() == "c ");
}

TEST_CASE("a node whose clock is set back while it is read delays the others no longer than the patience") {
    Story story;
    const auto right = story.node(0), set_back = story.node(0);
    story.greet(right);
    story.greet(set_back);
    story.has_come_to(set_back, 1'000);
    story.has_come_to(right, 1'000);
    story.writes(right, 5'000, "a");
    story.ahead[set_back] = -hour;
    std::string shown;
    for (int i = 0; i < 22; ++i, story.now += 100ms) {
        story.has_come_to(set_back, 5'000 + i * 100);
        story.writes(set_back, 5'000 + i * 100, "b");
        shown += story.shown();
    }
    CHECK(shown.ends_with("b a ~b "));
}

TEST_CASE("the whole wait of a line for a node that comes forward too slowly has a limit") {
    Story story;
    const auto right = story.node(0), slow = story.node(0);
    story.greet(right);
    story.greet(slow);
    story.writes(right, 1'000'000, "a");
    std::string shown;
    for (; shown.empty() && story.now < Instant(1h); story.now += 1s) {
        story.has_come_to(slow, story.now.time_since_epoch() / 1s);
        shown = story.shown();
    }
    CHECK(shown == "a ");
    CHECK(story.now == Instant(81s));
}

TEST_CASE("the others wait for a node that has not answered yet, until it does or has failed, for a time") {
    Story story;
    story.order.wait_for_clocks(Instant(2s));
    const auto one = story.node(0), silent = story.node(0);
    story.greet(one);
    story.writes(one, 10, "a");
    story.now = Instant(1'999ms);
    CHECK(story.shown().empty());
    CHECK(story.order.due() == Instant(2s));
    SECTION("it does neither") {
        story.now = Instant(2s);
        CHECK(story.shown() == "a ");
    }
    SECTION("another one that is added later delays nobody") {
        story.order.end(silent);
        story.now = Instant(2s);
        story.node(0);
        CHECK(story.shown() == "a ");
    }
    SECTION("it answers, and has an older line") {
        story.greet(silent);
        story.writes(silent, 5, "b");
        CHECK(story.shown() == "b ");
        story.has_come_to(silent, 10);
        CHECK(story.shown() == "a ");
    }
    SECTION("it fails") {
        story.order.end(silent);
        CHECK(story.shown() == "a ");
        story.order.end(silent);
    }
}

TEST_CASE("the number of a node that has ended is used again when its lines are out") {
    Story story;
    const auto one = story.node(0), other = story.node(0);
    story.greet(one);
    story.greet(other);
    CHECK_FALSE(story.order.begin_again(one));
    story.writes(one, 50, "x");
    story.order.end(one);
    CHECK_FALSE(story.order.begin_again(one));
    story.has_come_to(other, 60);
    CHECK(story.shown() == "x ");
    REQUIRE(story.order.begin_again(one));
    story.greet(one);
    story.writes(one, 70, "y");
    CHECK(story.shown().empty());
    story.has_come_to(other, 80);
    CHECK(story.shown() == "y ");
}

TEST_CASE("lines of one time stay together, and the waiting bytes of a node are known") {
    Story story;
    const auto one = story.node(0), other = story.node(0);
    story.greet(one);
    story.greet(other);
    for (const auto* text : {"x1", "x2", "x3"}) story.writes(one, 50, text);
    story.writes(other, 50, "y1");
    story.writes(other, 50, "y2");
    CHECK(story.order.waiting_bytes(one) > 6);
    story.order.end(one);
    story.order.end(other);
    CHECK(story.shown() == "x1 x2 x3 y1 y2 ");
    CHECK(story.order.waiting_bytes(one) == 0);
}

TEST_CASE("lines of a file without times come first and are not late") {
    Story story;
    const auto one = story.node(0), other = story.node(hour);
    story.greet(one);
    story.greet(other);
    story.writes(one, 5, "timed");
    story.order.end(one);
    story.has_come_to(other, 5);
    CHECK(story.shown() == "timed ");
    agent::LogLine line;
    line.text = "timeless";
    story.order.add(other, 1, line, story.now);
    CHECK(story.shown() == "timeless ");
}

TEST_CASE("what is complete ends before the first line that waits, and where a node has come to") {
    Story story;
    const auto one = story.node(0), other = story.node(hour);
    story.greet(one);
    story.greet(other);
    story.has_come_to(one, 100);
    story.has_come_to(other, 70);
    CHECK(story.order.complete_ns() == day_begin + 70 * ms);
    story.writes(other, 90, "a");
    CHECK(story.order.complete_ns() == day_begin + 90 * ms);
    story.order.end(one);
    story.order.end(other);
    CHECK(story.shown() == "a ");
    CHECK(story.order.complete_ns() == std::numeric_limits<std::int64_t>::max());
}
