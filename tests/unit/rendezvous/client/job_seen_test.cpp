// What agents see of their workers, and what the daemon makes of it: said and heard of a running round alone.
#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/client/dialogue.h"

namespace muster::test {

TEST_CASE("what all nodes together show is passed on in the round that it is about, while its workers run") {
    Dialogue talk;
    talk.settle_in();
    CHECK(talk.daemon(native::JobSeen{0, {}, {}}) == Lines{"deliver JobSeen"});
    CHECK(talk.daemon(native::JobSeen{1, {}, {}}).empty());
    talk.lines(talk.core->round_report({0, {}, 0}, talk.now));
    CHECK(talk.daemon(native::JobSeen{0, {}, {}}).empty());
}

TEST_CASE("what an agent sees while it has no connection is not said, and not later either") {
    Dialogue talk;
    talk.settle_in();
    const auto is_said = [](const Lines& lines) { return std::ranges::find(lines, "send WorkersSeen") != lines.end(); };
    const auto seen = [&] { return talk.lines(talk.core->submit(native::WorkersSeen{.round = 0}, talk.now)); };
    CHECK(is_said(seen()));
    talk.broken();
    CHECK_FALSE(is_said(seen()));
    CHECK_FALSE(is_said(talk.pass(100ms)));
    CHECK_FALSE(is_said(talk.open()));
    talk.pong();
    CHECK(is_said(seen()));
}

}  // namespace muster::test
