#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

TEST_CASE("a ping goes out each twentieth of the lease") {
    Dialogue talk;
    talk.settle_in();
    CHECK(talk.pass(5s, true) == Lines(20, "send Ping"));
}

TEST_CASE("a ping goes out at the pace that the daemon tells, as far as the lease allows") {
    const auto pings = [](std::uint32_t heartbeat_ms) {
        Dialogue talk;
        talk.heartbeat_ms = heartbeat_ms;
        talk.settle_in();
        return talk.pass(6s, true).size();
    };
    CHECK(pings(0) == 24);
    CHECK(pings(10) == 24);
    CHECK(pings(300) == 20);
    CHECK(pings(500) == 12);
    CHECK(pings(60'000) == 12);
}

TEST_CASE("at the slowest pace too a ping without an answer is repeated within 0.15 lease") {
    Dialogue talk;
    talk.heartbeat_ms = 500;
    talk.settle_in();
    REQUIRE(talk.pass(500ms, true) == Lines{"send Ping"});
    REQUIRE(talk.pass(500ms) == Lines{"send Ping"});  // this one stays without an answer
    CHECK(talk.pass(740ms).empty());
    CHECK(talk.pass(10ms) == Lines{"send Ping"});
}

TEST_CASE("the nodes of a large job wait for each other at the pace of their largest round") {
    const auto pings_of = [](std::uint32_t nodes_max) {
        Dialogue talk;
        native::Join join;
        join.terms.nodes_max = nodes_max;
        talk.lines(talk.core->join(join, talk.now));
        talk.open();
        talk.pong();
        const auto lines = talk.pass(6s, true);
        return std::count(lines.begin(), lines.end(), "send Ping");
    };
    CHECK(pings_of(1000) == 24);
    CHECK(pings_of(10'000) == 12);
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
    const auto seen = [&] { return talk.lines(talk.core->submit(native::WorkersSeen{.round = 0}, talk.now)); };
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
