#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

TEST_CASE("a ping goes out each twentieth of the lease") {
    Dialogue talk;
    talk.settle_in();
    CHECK(talk.pass(5s, true) == Lines(20, "send Ping"));
}

TEST_CASE("after a ping without an answer the next one waits three times as long") {
    Dialogue talk;
    talk.settle_in();
    REQUIRE(talk.pass(250ms, true) == Lines{"send Ping"});
    REQUIRE(talk.pass(250ms) == Lines{"send Ping"});  // this one stays without an answer
    CHECK(talk.pass(740ms).empty());
    CHECK(talk.pass(10ms) == Lines{"send Ping"});
    // The answer to an older one is none to this; its own is.
    talk.daemon(native::Pong{talk.last_ping.sequence - 1, talk.last_ping.sent_ns, 0});
    CHECK(talk.pass(250ms).empty());
    CHECK(talk.pong() == Lines{"send Ping"});
}

TEST_CASE("a node that may not be heard any more says nothing that can wait, so its last word is not later") {
    Dialogue talk;
    talk.settle_in();
    REQUIRE(talk.pass(250ms, true) == Lines{"send Ping"});
    const auto seen = [&] { return talk.lines(talk.core->workers_seen({.round = 0, .workers = {}}, talk.now)); };
    CHECK(seen() == Lines{"send WorkersSeen"});
    REQUIRE(talk.pass(250ms) == Lines{"send Ping"});
    CHECK(seen() == Lines{"send WorkersSeen"});  // its answer is not late yet
    talk.pass(130ms);
    CHECK(seen().empty());
    talk.pong();
    CHECK(seen() == Lines{"send WorkersSeen"});
}

TEST_CASE("where round trips take long, pings keep their pace") {
    Dialogue talk;
    talk.join();
    talk.open();
    talk.now += 400ms;
    talk.pong();  // and the next one goes out
    const auto lines = talk.pass(1s);
    CHECK(std::count(lines.begin(), lines.end(), "send Ping") == 4);
}

}  // namespace muster::test
