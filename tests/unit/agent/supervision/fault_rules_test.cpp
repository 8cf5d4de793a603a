// Whether a rehearsed loss may be, and how it is said.
#include "agent/supervision/fault_rules.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;
using native::Fault;
using native::FaultKind;
using native::FaultTarget;

namespace {

FaultFacts facts() {
    return {.allowed = true, .round = 3, .rank_base = 4, .alive = {0, 1}};
}

std::string refusal(const Fault& fault, const FaultFacts& here, Round round = 3) {
    return objection({.number = 1, .round = round, .fault = fault}, here);
}

}  // namespace

TEST_CASE("nothing is injected into an agent that was not started for it, whatever it is") {
    auto here = facts();
    here.allowed = false;
    for (const auto target : {FaultTarget::worker, FaultTarget::agent, FaultTarget::daemon})
        CHECK(refusal({.target = target, .rank = 4}, here) == "refused: this agent was started without --allow-faults");
}

TEST_CASE("a fault on a worker is for the round in which its rank was found, and for one that runs") {
    CHECK(refusal({.rank = 4}, facts()).empty());
    CHECK(refusal({.rank = 5}, facts()).empty());
    CHECK(refusal({.rank = 3}, facts()) == "rank 3 is not running: it has not started yet, or it has ended");
    CHECK(refusal({.rank = 6}, facts()) == "rank 6 is not running: it has not started yet, or it has ended");
    CHECK(refusal({.rank = 4}, facts(), 2) == "round 2 has ended; repeat the command when the next round runs");
    CHECK(refusal({.target = FaultTarget::agent}, facts(), 2).empty());
    CHECK(refusal({.target = FaultTarget::daemon}, facts()) == "this is an agent, not a daemon");
}

TEST_CASE("what makes no sense is refused, whoever asks") {
    CHECK_FALSE(native::wrong_with({.kind = FaultKind::partition, .for_ms = 1}).empty());
    CHECK_FALSE(native::wrong_with({.kind = FaultKind::partition, .target = FaultTarget::agent}).empty());  // for ever
    CHECK_FALSE(native::wrong_with({.kind = FaultKind::out_of_memory, .target = FaultTarget::agent}).empty());
    CHECK_FALSE(native::wrong_with({.kind = FaultKind::kill, .for_ms = 1}).empty());
    CHECK_FALSE(native::wrong_with({.kind = FaultKind::slow, .for_ms = 1, .stopped_percent = 100}).empty());
    CHECK_FALSE(native::wrong_with({.kind = FaultKind::stop, .for_ms = 3'600'001}).empty());
    CHECK(native::wrong_with({.kind = FaultKind::stop}).empty());
    CHECK(
        native::wrong_with({.kind = FaultKind::slow, .target = FaultTarget::daemon, .for_ms = 1, .stopped_percent = 99})
            .empty());
}

TEST_CASE("a fault is said as the command that asks for it") {
    CHECK(native::describe({.kind = FaultKind::stop, .rank = 3, .for_ms = 10'000}) ==
          "muster fault stop rank 3 --for 10");
    CHECK(native::describe({.kind = FaultKind::partition, .target = FaultTarget::agent, .for_ms = 1'050}) ==
          "muster fault partition node --for 1.050");
    CHECK(native::describe({.kind = FaultKind::kill, .target = FaultTarget::daemon}) == "muster fault kill daemon");
}

TEST_CASE("a slow agent stands still for its share of the time, and not for longer than was asked") {
    const Fault slow{.kind = FaultKind::slow, .target = FaultTarget::agent, .for_ms = 3'000, .stopped_percent = 80};
    const auto plan = native::self_signals(slow);
    CHECK(plan.stopped == 80ms);
    CHECK(plan.running == 20ms);
    CHECK((plan.stopped + plan.running) * plan.times == 3s);
    CHECK(native::self_signals({.kind = FaultKind::stop, .for_ms = 0}).stopped == Duration::zero());  // for good
}

TEST_CASE("what went on by itself explains an end only some seconds longer, and what does not explains any") {
    const Fault slow{.kind = FaultKind::slow, .for_ms = 30'000, .stopped_percent = 50};
    CHECK(may_explain(slow, 0s));
    CHECK(may_explain(slow, 35s));
    CHECK_FALSE(may_explain(slow, 36s));
    CHECK_FALSE(may_explain({.kind = FaultKind::stop, .for_ms = 10'000}, 1h));
    for (const auto kind : {FaultKind::stop, FaultKind::kill, FaultKind::out_of_memory})
        CHECK(may_explain({.kind = kind}, 1h));
}
