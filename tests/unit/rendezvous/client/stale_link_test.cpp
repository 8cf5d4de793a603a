// A connection over which nothing comes for half a lease (5 s). A second one is tried beside it.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

namespace {

bool says(const Lines& lines, std::string_view line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
}

}  // namespace

TEST_CASE("a silent connection stays while another one is tried, and pings go on over it") {
    Dialogue talk;
    talk.settle_in();
    auto said = talk.pass(2500ms);
    CHECK(says(said, "connect"));
    CHECK_FALSE(says(said, "disconnect"));
    CHECK(says(talk.pass(1s), "send Ping"));
}

TEST_CASE("a silent connection that is heard again first is the one that counts") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(2500ms);
    CHECK(talk.pong().front() == "abandon");
    CHECK(talk.open().empty());  // an attempt that was given up
    CHECK(talk.pass(20s, true) == Lines(80, "send Ping"));
}

TEST_CASE("the second connection replaces the silent one when it is open, and ends it when it is heard") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(2500ms);
    CHECK(talk.open() == Lines{"send Hello", "send Resume", "send Ping"});
    CHECK(talk.pong() == Lines{"drop older", "ask 0"});  // the parent is told that the daemon is back
    CHECK(talk.pass(20s, true) == Lines(80, "send Ping"));
}

TEST_CASE("an attempt that fails beside a silent connection is made again, and that one still counts") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(2500ms);
    CHECK_FALSE(says(talk.hears(ConnectionFailed{"no route"}), "disconnect"));
    CHECK(says(talk.pass(100ms), "connect"));
    talk.hears(ConnectionFailed{"no route"});
    talk.pong();
    CHECK(talk.pass(20s, true) == Lines(80, "send Ping"));
}

TEST_CASE("a silent connection that ends leaves the attempt alone") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(2500ms);
    CHECK_FALSE(says(talk.broken(), "connect"));
    CHECK(talk.open() == Lines{"send Hello", "send Resume", "send Ping"});
    CHECK(talk.pong() == Lines{"ask 0"});  // nothing older is left
}

TEST_CASE("a second connection that is silent too ends by itself; the first one still stays") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(2500ms);
    talk.open();
    const auto said = talk.pass(2500ms);
    CHECK(says(said, "disconnect"));
    CHECK(says(said, "connect"));
    CHECK_FALSE(says(said, "drop older"));
    talk.open();
    CHECK(says(talk.pong(), "drop older"));
}

TEST_CASE("a node that leaves while its connection is silent says so on whichever is heard") {
    Dialogue talk;
    talk.settle_in();
    talk.pass(2500ms);
    CHECK_FALSE(says(talk.lines(talk.core->leave("drained", talk.now)), "send Leave"));
    CHECK(says(talk.daemon(native::Pong{talk.last_ping.sequence, talk.last_ping.sent_ns, 0}), "send Leave"));
}

TEST_CASE("of several endpoints the one that was silent is the endpoint again when it is heard") {
    Dialogue talk;
    talk.knows_several();
    talk.settle_in();
    CHECK(says(talk.pass(2500ms), "connect b"));
    CHECK(talk.pong().front() == "abandon");
    talk.broken();
    CHECK(says(talk.pass(20ms), "connect a"));
}

}  // namespace muster::test
