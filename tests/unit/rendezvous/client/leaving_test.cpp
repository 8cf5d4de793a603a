// An agent that leaves where daemons take over from each other: its last word has to reach the one that leads.
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

TEST_CASE("a leave that went to a daemon which does not lead any more is said to the next one") {
    Dialogue talk;
    talk.config.others = {{"b", 1}};
    talk.core.emplace(talk.config);
    talk.settle_in();
    talk.lines(talk.core->leave("stopped", talk.now));
    CHECK(talk.core->has_sent_all());
    talk.daemon(native::NotLeader{"b:1"});
    CHECK_FALSE(talk.core->has_sent_all());
    talk.pass(20ms);
    CHECK(talk.open() == Lines{"send Hello", "send Leave", "send Ping"});
}

TEST_CASE("a leave whose connection broke is said to the next daemon, as the driver wishes it") {
    Dialogue talk;
    talk.config.others = {{"b", 1}};
    talk.core.emplace(talk.config);
    talk.settle_in();
    talk.lines(talk.core->leave("stopped", talk.now));
    talk.core->leave_not_acknowledged();
    talk.broken();
    CHECK_FALSE(talk.core->has_sent_all());
    talk.pass(20ms);
    CHECK(talk.open() == Lines{"send Hello", "send Leave", "send Ping"});
    CHECK(talk.core->has_sent_all());
}

}  // namespace muster::test
