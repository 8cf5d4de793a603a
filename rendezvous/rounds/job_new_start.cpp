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
    if (anew && (members_.empty() || (ending_ && turn.now >= ended_at_ + config_.end_linger))) return true;  // at once
    const auto why = why_held(join, turn.now);
    turn.step.why.push_back(cat("job '", id_, "': ", label(arrival.node), " waits for ", why));
    turn.send(arrival.connection, native::Gathering{.joined = 0,
                                                    .nodes_min = join.terms.nodes_min,
                                                    .nodes_max = join.terms.nodes_max,
                                                    .last_call_left_ms = -1,
                                                    .waiting_for = why});
    return true;
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
    const auto differs = difference(terms_, terms_by_, join.terms, "this node");
    // Of a job that has no members the time is Instant::min(), from which nothing can be taken away.
    const auto until = std::max(given_up_at(reachability(now)) + lease(), now);
    return cat("the lost agents of this job's earlier run to be confirmed gone, at most ", describe(until - now),
               differs.empty() ? std::string("; it ran another program") : cat("; ", differs));
}

bool Job::any_connected() const {
    return std::ranges::any_of(members_, [](const auto& entry) { return entry.second.connected(); });
}

bool Job::any_new_start() const {
    return std::ranges::any_of(held_, [](const auto& entry) { return entry.second.anew; });
}

std::vector<HeldJoin> Job::take_released() {
    std::vector<HeldJoin> released;
    if (held_.empty()) return released;
    const bool is_open = claims_until_ != no_deadline && settled_at_ < claims_until_;
    if (!forgotten_ && (is_open || ending_ || (claims_until_ == no_deadline && !any_connected()))) return released;
    for (auto& [connection, held] : std::exchange(held_, {})) released.push_back(std::move(held));
    return released;
}

void Job::send_end_to_held(const Turn& turn) {
    for (const auto& [connection, held] : std::exchange(held_, {})) tell_end(held.arrival, turn);
}

/// A daemon that has just been started without state may hear a stray agent first, whose terms it takes for the job's.
/// Agents that have been in a round of it know them better, but anybody can say so. So they are held for a lease, and
/// the terms change when more of them have the same ones than there are members. False: it is not held, and is judged
/// by the job's terms.
bool Job::hold_claim(const Arrival& arrival, const native::Join& join, bool resumes, const Turn& turn) {
    const auto objected = round_.number == no_round ? objection(arrival, join) : std::nullopt;
    if (!objected || objected->reason != native::RefusalReason::terms_differ || turn.now >= claims_until_) return false;
    if (claims_until_ == no_deadline) claims_until_ = turn.now + lease();
    held_.insert_or_assign(arrival.connection, HeldJoin{arrival, join, false, true, resumes});
    const auto same = std::ranges::count_if(
        held_, [&](const auto& entry) { return entry.second.claims && entry.second.join.terms == join.terms; });
    if (static_cast<std::size_t>(same) <= members_.size()) {
        turn.step.why.push_back(cat("job '", id_, "': ", label(arrival.node),
                                    " waits until it is clear which terms are the job's: ", objected->why));
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
    turn.step.why.push_back(cat("job '", id_, "': ", label(arrival.node),
                                " and others have been in a round of it, and "
                                "their terms are the job's; they were ",
                                terms_by_, "'s until now"));
    terms_ = join.terms;
    terms_by_ = label(arrival.node);
    claims_until_ = turn.now;
    held_.erase(arrival.connection);
    return false;
}

}  // namespace muster::rendezvous
