#include "agent/supervision/fault_rules.h"

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// After this time a stopped process knows that the others evicted it.
constexpr Duration aftermath = 5s;

}  // namespace

std::string objection(const native::FaultOrdered& order, const FaultFacts& facts) {
    if (!facts.allowed) return "refused: this agent was started without --allow-faults";
    const auto& fault = order.fault;
    if (auto wrong = native::wrong_with(fault); !wrong.empty()) return wrong;
    if (fault.target == native::FaultTarget::daemon) return "this is an agent, not a daemon";
    if (fault.target == native::FaultTarget::agent) return {};
    // The same rank of the next round may be another worker.
    if (order.round != facts.round)
        return cat("round ", order.round, " has ended; repeat the command when the next round runs");
    if (fault.rank < facts.rank_base || !facts.alive.contains(fault.rank - facts.rank_base))
        return cat("rank ", fault.rank, " is not running: it has not started yet, or it has ended");
    return {};
}

bool may_explain(const native::Fault& fault, Duration after) {
    return fault.for_ms == 0 || after <= std::chrono::milliseconds(fault.for_ms) + aftermath;
}

}  // namespace muster::agent
