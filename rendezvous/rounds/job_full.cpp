// Detects nodes of another job that uses this job's id by accident, because the default id is shared: the same script
// with other arguments, for example. A surplus node would wait for the end as a spare, and exit with 0 without having
// run its program.
//
// A surplus node is refused if the job has a fixed number of nodes and no --spares, if its program or arguments equal
// those of no present node, and if its host has never been in a round. Below the maximum no node is refused for that: a
// script may take its node's number. Judged while a round runs, whenever a node joins or resumes, so that the order of
// messages after a daemon's restart does not matter. After the job's end the same conditions hold: a node that would
// have waited as a spare a moment earlier receives the end.
#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/ledgers/launched.h"

namespace muster::rendezvous {

namespace {

/// Where none of these launches what `join` does, the first one; nullptr: one does, or has not told.
const Member* another_job(const std::vector<const Member*>& members, const native::Join& join) {
    const bool other =
        std::ranges::all_of(members, [&](const Member* member) { return launches_other(member->join, join); });
    return other && !members.empty() ? members.front() : nullptr;
}

}  // namespace

void Job::refuse_others(const Turn& turn) {
    if (!round_.running() || !waiting_changed_ || tally_.gathered == 0 || takes_surplus()) return;
    const auto there = there_by_rank();
    // After a restart of the daemon the newcomer may be the next agent of a node that is still to come back.
    if (there.size() + round_.through_gone.size() < round_.node_count) return;
    std::vector<Incarnation> refused;
    for (const auto& [incarnation, member] : members_) {
        if (member.place != Place::waiting || !member.connected() || is_host(member) || was_here(member)) continue;
        const auto* other = another_job(there, member.join);
        if (other == nullptr) continue;
        auto why = why_other("is full and runs other arguments", *other, member.node, member.join);
        turn.tell(EventKind::node_refused, cat(label(member.node), " is refused: ", why), facts_of(member));
        turn.send(member.connection, native::Refused{native::RefusalReason::job_full, std::move(why)});
        turn.step.actions.push_back(CloseConnection{member.connection, "refused"});
        refused.push_back(incarnation);
    }
    for (const auto incarnation : refused) erase(members_.find(incarnation), turn);
}

/// A node of another job that comes when this one is over would be told the end of it, and leave with 0.
bool Job::refuse_late(const Arrival& arrival, const native::Join& join, const Turn& turn) {
    if (join.last_round != no_round || members_.contains(arrival.node.incarnation)) return false;
    if (takes_surplus() || follows_former(arrival.node)) return false;
    std::vector<const Member*> all;
    for (const auto& [incarnation, member] : members_) all.push_back(&member);
    const auto* other = another_job(all, join);
    if (other == nullptr) return false;
    turn.send(arrival.connection,
              native::Refused{native::RefusalReason::job_full,
                              why_other("is over and ran other arguments", *other, arrival.node, join)});
    return true;
}

std::string Job::why_other(std::string_view what, const Member& here, const NodeIdentity& node,
                           const native::Join& join) const {
    const auto [ours, theirs] = both_launched(here.join, join);
    return cat("job '", id_, "' ", what, ": ", ours, " at ", label(here.node), ", and ", theirs, " at ", label(node),
               "; if this is another job, give it its own --rdzv-id or port");
}

/// An elastic job, or one with --spares: each surplus node waits as a spare, whatever it runs.
bool Job::takes_surplus() const {
    return nodes_needed() != terms_.nodes_max || terms_.spares > 0;
}

bool Job::was_here(const Member& member) const {
    return member.round != no_round || member.join.last_round != no_round || follows_former(member.node);
}

/// An earlier agent of its host was in a round and is gone. A second agent beside a live one follows nobody.
bool Job::follows_former(const NodeIdentity& node) const {
    const bool beside = std::ranges::any_of(members_, [&](const auto& entry) {
        const auto& other = entry.second;
        return other.node.incarnation != node.incarnation && other.connected() && other.node.host == node.host;
    });
    return !beside && std::ranges::find(former_hosts_, node.host) != former_hosts_.end();
}

}  // namespace muster::rendezvous
