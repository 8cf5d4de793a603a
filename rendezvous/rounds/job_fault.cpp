// Fault injection (muster fault). The daemon forwards the order to the agent of the named worker or node; that agent
// decides whether it is allowed, and its answer goes back to the sender. Later reports name the injected fault.
#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"

namespace muster::rendezvous {

namespace {

/// Orders that no agent has answered yet; beyond this, the oldest is dropped.
constexpr std::size_t pending_faults_max = 64;

}  // namespace

/// Nothing where the answer is the agent's.
std::optional<native::CommandAnswer> Job::inject_fault(ConnectionId from, const native::Command& command,
                                                       const Turn& turn) {
    const auto no = [&](std::string why) { return native::CommandAnswer{command.number, false, std::move(why)}; };
    const auto& fault = command.fault;
    if (auto wrong = native::wrong_with(fault); !wrong.empty()) return no(std::move(wrong));
    if (fault.target == native::FaultTarget::daemon) return fault_on_daemon(command, turn);
    const auto found = fault.target == native::FaultTarget::worker ? find_rank(fault.rank) : find_node(command.node);
    if (!found) return no(found.error().context);
    const auto& member = **found;
    if (!member.connected()) return no(cat(label(member.node), " is not connected at the moment; try again later"));
    if (pending_faults_.size() == pending_faults_max) pending_faults_.erase(pending_faults_.begin());
    pending_faults_.push_back({++last_fault_, member.node.incarnation, fault, from, command.number});
    turn.send(member.connection, native::FaultOrdered{last_fault_, member.round, fault});
    return std::nullopt;
}

native::CommandAnswer Job::fault_on_daemon(const native::Command& command, const Turn& turn) const {
    if (!config_.allow_faults)
        return {command.number, false,
                config_.embedded_for.empty()
                    ? "refused: this daemon was started without --allow-faults"
                    : "refused: this daemon is part of a node's muster that was started without --allow-faults"};
    turn.tell(EventKind::fault_injected, cat("job '", id_, "': injected by ", native::describe(command.fault)));
    turn.step.actions.push_back(SufferFault{command.fault});
    return {command.number, true,
            config_.embedded_for.empty()
                ? "the fault strikes this daemon now"
                : "the fault strikes this daemon now, and the node whose muster it is part of"};
}

Result<Member*> Job::find_rank(std::uint32_t rank) {
    if (!round_.running()) return Error{Errc::not_found, "no round of the job is running, so it has no ranks"};
    const auto by_rank = there_by_rank();
    if (by_rank.size() != round_.node_count)
        return Error{Errc::not_found,
                     cat("nodes of round ", round_.number, " have already finished; try again in the next round")};
    std::uint32_t base = 0;
    for (const auto* member : by_rank) {
        if (rank < base + member->join.slots) return &members_.at(member->node.incarnation);
        base += member->join.slots;
    }
    return Error{Errc::not_found, cat("the job's round ", round_.number, " has no rank ", rank, "; it has 0 to ",
                                      base == 0 ? 0 : base - 1)};
}

void Job::on_report(Incarnation from_agent, const native::FaultAnswer& answer, const Turn& turn) {
    const auto pending = std::find_if(pending_faults_.begin(), pending_faults_.end(), [&](const PendingFault& one) {
        return one.number == answer.number && one.agent == from_agent;
    });
    const auto found = members_.find(from_agent);
    if (pending == pending_faults_.end() || found == members_.end()) return;
    const auto asked = *pending;
    pending_faults_.erase(pending);
    auto& member = found->second;
    turn.send(asked.asked_by,
              native::CommandAnswer{asked.asked_as, answer.done, cat(label(member.node), ": ", answer.text)});
    if (!answer.done) return;
    turn.tell(EventKind::fault_injected,
              cat("job '", id_, "': on ", label(member.node), ", injected by ", native::describe(asked.fault)),
              facts_of(member));
    if (asked.fault.target != native::FaultTarget::agent) return;
    member.fault = native::describe(asked.fault);
    // The lease detects its loss; two leases leave room for a slow daemon. The same holds for a permanent stop: an
    // agent that is heard later was resumed, and later failures have another cause. When all agents of a round are
    // stopped, none is judged before the lost timeout.
    const bool for_good = asked.fault.kind == native::FaultKind::stop && asked.fault.for_ms == 0;
    member.fault_until = turn.now + std::chrono::milliseconds(asked.fault.for_ms) + 2 * lease() +
                         (for_good ? lost_timeout() : Duration::zero());
}

/// How a node was lost, with the fault that was injected into it.
std::string Job::explained(const Member& member, std::string how, Instant now) {
    if (member.fault.empty() || now >= member.fault_until) return how;
    return cat(std::move(how), "; injected by ", member.fault);
}

}  // namespace muster::rendezvous
