// Agents that may start the job anew, and agents that joined before others which know the job better.
//
// A job's name outlives a run of it: in kept state, for a lost timeout after its last agent was lost, and for
// end_linger after its end. An agent that is started again under that name must not be refused forever because of its
// former agents' terms, nor receive the former run's end, nor run beside workers that may still exist. Its join is
// therefore held until it is known which case applies:
//
//   no agent of the job is connected, and this one has other terms or another program
//       one of them is heard: refused; all are lost for good: the job starts anew, with these terms
//   the job is over, and this agent's host has received its end
//       all have received it, or end_linger has passed: the job starts anew
//   the job is over, and its last round had room for this agent: it is late, or another node of a new start
//       another agent shows that it is a new start: as above; else it receives the end after end_linger
//
// Nothing of this is kept: an agent whose daemon is lost asks the next one. The round that a held agent names counts at
// once, because the agent may go before it is judged, or a round be sealed: the next number is above it.
#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/terms.h"

namespace muster::rendezvous {

bool Job::hold_back(const Arrival& arrival, const native::Join& join, const Turn& turn) {
    if (members_.contains(arrival.node.incarnation)) return false;
    bool anew = true;
    if (ending_) {
        const auto of_this_host = [&](const auto& entry) { return entry.second.node.host == arrival.node.host; };
        const bool fresh = join.last_round == no_round;
        const bool lingered = turn.now >= ended_at_ + config_.end_linger;
        const bool received_there = std::ranges::find(ended_on_, arrival.node.host) != ended_on_.end() &&
                                    std::ranges::none_of(members_, of_this_host);
        const bool may_be_late = round_.node_count < terms_.nodes_max && config_.embedded_for != id_;
        anew = lingered || (fresh && received_there);
        if (!anew && !(fresh && may_be_late)) return false;
    } else if (any_connected() || !objection(arrival, join)) {
        return false;
    }
    held_.insert_or_assign(arrival.connection, HeldJoin{arrival, join, anew});
    const bool at_once = ending_ ? members_.empty() || turn.now >= ended_at_ + config_.end_linger
                                 : members_.empty() && turn.now >= given_up_have_stopped_at();
    if (anew && at_once) return true;
    const auto why = why_held(join, turn.now);
    turn.tell(EventKind::node_waiting, cat("job '", id_, "': ", label(arrival.node), " waits for ", why),
              facts_of(arrival.node));
    turn.send(arrival.connection, native::Gathering{.joined = 0,
                                                    .nodes_min = join.terms.nodes_min,
                                                    .nodes_max = join.terms.nodes_max,
                                                    .last_call_left_ms = -1,
                                                    .waiting_for = why});
    return true;
}

bool Job::is_alive() const {
    return (!ending_ && !members_.empty()) ||
           std::ranges::any_of(held_, [](const auto& entry) { return entry.second.anew; });
}

/// The join of an agent whose earlier connection holds one already is said again, and held again, on the newer one.
bool Job::take_held_connection(const Arrival& arrival, const Turn& turn) {
    const auto found = std::ranges::find_if(held_, [&](const auto& entry) {
        return entry.second.arrival.node.incarnation == arrival.node.incarnation && entry.first != arrival.connection;
    });
    if (found == held_.end()) return true;
    const auto& [connection, held] = *found;
    if (arrival.number <= held.arrival.number) {
        refuse_duplicate(arrival, held.arrival.node, turn);
        return false;
    }
    close_replaced(connection, turn);
    held_.erase(found);
    return true;
}

std::string Job::why_held(const native::Join& join, Instant now) const {
    if (ending_) return "all agents of this job's earlier run to acknowledge its end";
    if (members_.empty())
        return cat("the workers of this job's refused agents to stop, at most ",
                   describe(given_up_have_stopped_at() - now));
    const auto differs = difference(terms_, terms_by_, join.terms, "this node");
    // Of a job that has no members the time is Instant::min(), from which nothing can be taken away.
    const auto until = std::max({given_up_at(reachability(now)) + lease(), given_up_have_stopped_at(), now});
    return cat("the lost agents of this job's earlier run to be confirmed gone, at most ", describe(until - now),
               differs.empty() ? std::string("; it ran another program") : cat("; ", differs));
}

bool Job::any_connected() const {
    return std::ranges::any_of(members_, [](const auto& entry) { return entry.second.connected(); });
}

std::vector<HeldJoin> Job::take_released() {
    std::vector<HeldJoin> released;
    // Without members nobody contradicts them.
    const bool is_open = settled_at_ < claims_until_ && !members_.empty();
    std::erase_if(held_, [&](auto& entry) {
        const bool waits = !forgotten_ && (ending_ || (entry.second.claims ? is_open : !any_connected()));
        if (!waits) released.push_back(std::move(entry.second));
        return !waits;
    });
    return released;
}

/// A daemon that has just been started without state may hear a stray agent first, whose terms it takes for the job's.
/// Agents that have been in a round of it know them better, but anybody can say so. So they are held for a lease, and
/// the terms change when more of them have the same ones than there are members, or one that runs a round has proved
/// the secret. False: it is not held, and is judged by the job's terms.
bool Job::hold_claim(const Arrival& arrival, const native::Join& join, bool resumes, const Turn& turn) {
    const auto objected = round_.number == no_round ? objection(arrival, join) : std::nullopt;
    if (!objected || objected->reason != native::RefusalReason::terms_differ) return false;
    const bool is_known = resumes && arrival.proven;
    if (!is_known && turn.now >= claims_until_ && !members_.empty()) return false;
    if (claims_until_ == no_deadline) claims_until_ = turn.now + lease();
    held_.insert_or_assign(arrival.connection, HeldJoin{arrival, join, false, true, resumes});
    const auto same = std::ranges::count_if(
        held_, [&](const auto& entry) { return entry.second.claims && entry.second.join.terms == join.terms; });
    if (!is_known && static_cast<std::size_t>(same) <= members_.size()) {
        turn.tell(EventKind::node_waiting,
                  cat("job '", id_, "': ", label(arrival.node),
                      " waits until it is clear which terms are the job's: ", objected->why),
                  facts_of(arrival.node));
        return true;
    }
    while (!members_.empty()) {
        const auto& member = members_.begin()->second;
        if (member.connected())
            held_[member.connection] = {
                {member.connection, member.peer, member.node, member.connection_number, member.versions, member.proven},
                member.join};
        erase(members_.begin(), turn);
    }
    terms_ = join.terms;
    turn.tell(EventKind::job_note,
              cat("job '", id_, "': the terms of ", label(arrival.node),
                  ", which has been in a round of it, replace those of ", terms_by_),
              terms_facts());
    terms_by_ = label(arrival.node);
    claims_until_ = turn.now;
    held_.erase(arrival.connection);
    return false;
}

}  // namespace muster::rendezvous
