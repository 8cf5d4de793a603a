#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

TEST_CASE("an agent with several endpoints goes on to the next when one does not answer, and round again") {
    Dialogue talk;
    talk.knows_several();
    CHECK(talk.join() == Lines{"connect a"});
    for (const auto* next : {"connect b", "connect c", "connect a"}) {
        talk.hears(ConnectionFailed{"connection refused"});
        Lines lines;
        while ((lines = talk.pass(10ms)).empty()) {
        }
        CHECK(lines == Lines{next});
    }
}

TEST_CASE("an agent goes where the daemon sends it that does not lead, and nothing of that one counts as heard") {
    Dialogue talk;
    talk.config.others = {{"b", 1}, {"c", 1}};
    talk.core.emplace(talk.config);
    talk.settle_in();
    talk.broken();
    talk.pass(20ms);
    talk.open();
    CHECK(talk.daemon(native::NotLeader{"leader:29400"}) == Lines{"disconnect"});
    CHECK(talk.pass(20ms) == Lines{"connect leader"});
    // It is gone as well: on with the list.
    talk.hears(ConnectionFailed{"connection refused"});
    Lines lines;
    while ((lines = talk.pass(10ms)).empty()) {
    }
    CHECK(lines == Lines{"connect b"});
    // Words without a leader do not stand for one: the workers are fenced as if nobody had answered.
    bool asked = false;
    for (int i = 0; i < 500 && !asked; ++i) {
        talk.open();
        talk.daemon(native::NotLeader{""});
        for (const auto& line : talk.pass(10ms)) asked = asked || line.starts_with("ask ");
    }
    CHECK(asked);
}

TEST_CASE("a leader that was told of and falls silent is not asked again because the list has it next") {
    Dialogue talk;
    talk.knows_several();
    talk.join();
    talk.open();
    talk.daemon(native::NotLeader{"b:1"});
    REQUIRE(talk.pass(20ms) == Lines{"connect b"});
    talk.open();
    talk.pong();
    talk.daemon(Dialogue::assigned());
    Lines connects;
    for (const auto& line : talk.pass(2600ms))
        if (line.starts_with("connect")) connects.push_back(line);
    CHECK(connects == Lines{"connect c"});
}

namespace {

/// Time passes until the next attempt: where it goes.
std::string next_endpoint(Dialogue& talk) {
    while (!any_starts_with(talk.pass(10ms), "connect")) {
    }
    return talk.core->endpoint().host;
}

/// The answer of a peer that hears `leader`.
native::PeerAnswer says(const char* leader) {
    return {.round = 0, .leader_lost = false, .all_age_ns = -1, .leader = leader};
}

/// It waits so long for the first message of the daemon whose connection is open now.
bool waits(Dialogue& talk, Duration time) {
    talk.open();
    return !any_starts_with(talk.pass(time - 10ms), "connect") && any_starts_with(talk.pass(10ms), "connect");
}

}  // namespace

TEST_CASE(
    "with running workers, a daemon that was silent gets an eighth of a lease when a follower names it once more, "
    "whatever fails meanwhile") {
    Dialogue talk;
    talk.knows_several();
    talk.settle_in();
    REQUIRE(any_starts_with(talk.pass(2500ms), "connect b"));  // half a lease without an answer of a
    const auto sent_back = [&] {
        if (talk.core->endpoint().host == "c") {
            talk.hears(ConnectionFailed{"no route to host"});
        } else {
            talk.open();
            talk.daemon(native::NotLeader{"a:1"});
        }
        return next_endpoint(talk);
    };
    REQUIRE(sent_back() == "a");
    const auto left_at = talk.now;
    REQUIRE(waits(talk, 1250ms));  // a quarter: it is skipped for half a lease now
    while (sent_back() != "a") {
    }
    CHECK(talk.now >= left_at + 1250ms + 2500ms);
    CHECK(waits(talk, 625ms));
}

TEST_CASE("with running workers, a daemon that refuses a connection costs no wait before the next one is asked") {
    Dialogue talk;
    talk.knows_several();
    talk.settle_in();
    REQUIRE(any_starts_with(talk.pass(2500ms), "connect b"));
    Duration longest{};
    for (int refusals = 0; refusals < 4;) {
        const bool refuses = talk.core->endpoint().host == "b";
        const auto since = talk.now;
        if (refuses) {
            talk.hears(ConnectionFailed{"connection refused"});
        } else {
            talk.open();
            talk.daemon(native::NotLeader{""});
        }
        REQUIRE(next_endpoint(talk) != (refuses ? "b" : ""));
        if (!refuses) continue;
        longest = std::max(longest, talk.now - since);
        ++refusals;
    }
    CHECK(longest <= 20ms);
}

namespace {

/// How long a node of a round takes to ask each daemon once, when none leads and the waits are as long as they may be.
Duration time_to_ask_all(Dialogue& talk, std::uint32_t world) {
    talk.settle_in(world);
    while (!any_starts_with(talk.pass(10ms), "connect")) {
    }
    Instant since;
    for (int rounds = 0; rounds < 5; ++rounds) {
        since = talk.now;
        for (std::size_t daemons = 0; daemons <= talk.config.others.size(); ++daemons) {
            talk.open();
            talk.daemon(native::NotLeader{""});
            while (!any_starts_with(talk.pass(1ms), "connect")) {
            }
        }
    }
    return talk.now - since;
}

}  // namespace

TEST_CASE("with running workers, each daemon is asked for the leader again within a tenth of a lease") {
    Dialogue talk;
    talk.knows_several();
    CHECK(time_to_ask_all(talk, 3) <= 510ms);
}

TEST_CASE("a large round's nodes ask for the leader 20,000 times a second in all, however many daemons there are") {
    Dialogue talk;
    talk.knows_several();
    CHECK(time_to_ask_all(talk, 4000) >= 600ms);
    Dialogue larger;
    larger.knows_several();
    CHECK(time_to_ask_all(larger, 100'000) == 1500ms);
}

TEST_CASE("a node of a round looks for the leader no sooner than backoff_min, however short the lease is") {
    Dialogue talk;
    talk.config.lease = 1s;
    talk.config.others = {{"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}};
    talk.core.emplace(talk.config);
    CHECK(time_to_ask_all(talk, 3) == 120ms);
}

TEST_CASE("a daemon that refused a connection is asked again soon when another one names it as the leader") {
    Dialogue talk;
    talk.knows_several();
    talk.settle_in();
    REQUIRE(any_starts_with(talk.pass(2500ms), "connect b"));
    talk.hears(ConnectionFailed{"connection refused"});
    const auto refused_at = talk.now;
    REQUIRE(next_endpoint(talk) == "c");
    do {
        talk.open();
        talk.daemon(native::NotLeader{"b:1"});
    } while (next_endpoint(talk) != "b");
    CHECK(talk.now >= refused_at + 500ms);
    CHECK(talk.now < refused_at + 1s);
    CHECK(waits(talk, 625ms));
}

TEST_CASE("a daemon that refused a connection and says since then that it does not lead has its whole time") {
    Dialogue talk;
    talk.knows_several();
    talk.settle_in();
    REQUIRE(any_starts_with(talk.pass(2500ms), "connect b"));
    talk.hears(ConnectionFailed{"connection refused"});
    for (int answers = 0; answers < 1;) {
        const bool is_back = next_endpoint(talk) == "b";
        talk.open();
        talk.daemon(native::NotLeader{""});
        answers += is_back ? 1 : 0;
    }
    while (next_endpoint(talk) != "b") {
        talk.open();
        talk.daemon(native::NotLeader{""});
    }
    CHECK(waits(talk, 1250ms));
}

TEST_CASE("an agent that looks for the leader goes where a peer hears it") {
    Dialogue talk;
    talk.knows_several();
    talk.settle_in();
    talk.broken();
    talk.pass(2250ms);
    talk.peer(0, says("c:1"));
    CHECK(talk.core->endpoint().host == "c");
    talk.open();
    talk.pong();
    CHECK(talk.asks(2, true, 1) == says("c:1"));
}

TEST_CASE("a daemon that was silent is asked at once when a peer hears it or a follower names it as the next leader") {
    for (const bool by_peer : {true, false}) {
        INFO(by_peer);
        Dialogue talk;
        talk.knows_several();
        talk.settle_in();
        REQUIRE(any_starts_with(talk.pass(2500ms), "connect b"));
        REQUIRE(waits(talk, 1250ms));
        talk.open();
        talk.daemon(native::NotLeader{by_peer ? "" : "b:1"});
        if (by_peer) talk.peer(0, says("b:1"));
        CHECK(talk.core->endpoint().host == "b");
    }
}

TEST_CASE("a peer that still names the lost leader takes nobody off another daemon") {
    Dialogue talk;
    talk.knows_several();
    talk.settle_in();
    talk.broken();
    REQUIRE(talk.pass(1200ms) == Lines{"connect a"});
    talk.hears(ConnectionFailed{"no answer"});
    REQUIRE(next_endpoint(talk) == "b");
    talk.open();
    for (const auto waited : {1030ms, 100ms}) {
        talk.pass(waited);
        REQUIRE(talk.core->endpoint().host == "b");
        CHECK(talk.peer(0, says("a:1")).empty());
        CHECK(talk.core->endpoint().host == "b");
    }
}

TEST_CASE("an agent that waits for the leader's first answer stays there when a peer names it") {
    Dialogue talk;
    talk.knows_several();
    talk.settle_in();
    talk.broken();
    talk.pass(2250ms);
    talk.peer(0, says("c:1"));
    talk.open();
    talk.pass(400ms);
    CHECK_FALSE(any_starts_with(talk.peer(0, says("c:1")), "disconnect"));
    talk.pass(300ms);
    CHECK(any_starts_with(talk.peer(0, says("b:1")), "disconnect"));
    CHECK(talk.core->endpoint().host == "b");
}

TEST_CASE("a connection to the leader that had no answer counts, also when another daemon does not lead") {
    Dialogue talk;
    talk.knows_several();
    talk.join();
    talk.open();  // the leader hears of it, and is slow
    REQUIRE(talk.hello.connection == 1);
    talk.pass(1250ms);
    talk.open();
    REQUIRE(talk.core->endpoint().host == "b");
    talk.daemon(native::NotLeader{"a:1"});
    talk.pass(20ms);
    talk.open();
    CHECK(talk.hello.connection == 2);
}

TEST_CASE("an agent that was only sent elsewhere comes to the leader on its first connection") {
    Dialogue talk;
    talk.config.others = {{"b", 1}};
    talk.core.emplace(talk.config);
    talk.join();
    talk.open();
    talk.daemon(native::NotLeader{"b:1"});
    talk.pass(20ms);
    talk.open();
    CHECK(talk.hello.connection == 1);
    talk.pong();
    talk.broken();
    talk.pass(20ms);
    talk.open();
    CHECK(talk.hello.connection == 2);
}

}  // namespace muster::test
