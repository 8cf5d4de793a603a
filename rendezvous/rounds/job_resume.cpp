// An agent that comes back on a new connection and says in which round its workers run. What it means depends on
// whether this daemon knows the agent, knew it and gave it up, or has been started since.
#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"

namespace muster::rendezvous {

using native::RoundEndReason;

bool Job::on_resume(const Arrival& arrival, const native::Resume& resume, const Turn& turn) {
    if (!take_connection(arrival, turn)) return false;
    if (ending_) {
        tell_end(arrival, turn);
        return true;
    }
    const auto found = members_.find(arrival.node.incarnation);
    const bool is_open = round_.number == no_round ? turn.now < taught_until_ : turn.now < no_seal_before_;
    const bool is_believed = believes(arrival, resume.round);
    const bool may_teach = is_open && is_believed;
    const bool is_known = found != members_.end();
    const bool is_held = !is_known && may_teach && hold_claim(arrival, resume.as_joined, true, turn);
    const bool refused = !is_known && !is_held && is_refused(arrival, resume.as_joined, turn);
    if ((is_held || refused) && may_teach && round_.number == no_round)
        wait_for_refused(arrival, resume, is_held, turn);
    if (refused) return false;
    if (is_believed) number_rounds_from(resume.round + 1);
    if (is_known)
        resume_known(found->second, resume, turn);
    else if (may_teach && !is_held)
        adopt(arrival, resume, turn);
    else if (!is_held)
        take_back(arrival, resume, turn);
    settle(turn);
    return true;
}

/// From its refusal on it needs time to stop its workers. A held one is refused when the hold is over. One after the
/// other prolongs it, while this daemon can be taught a round.
void Job::wait_for_refused(const Arrival& arrival, const native::Resume& resume, bool is_held, const Turn& turn) {
    const auto lasts = doubt_lasts(arrival.proven, resume.stop_grace_ms * 1ms);
    if (claimed_until_ < turn.now) claim_counted_at_ = turn.now;
    claimed_until_ = std::max(claimed_until_, (is_held ? claims_until_ : turn.now) + lasts);
}

void Job::resume_known(Member& member, const native::Resume& resume, const Turn& turn) {
    const bool current = resume.round == round_.number && member.round == round_.number;
    if (current) member.rank_base = resume.as_assigned.rank_base;
    if (current && in_running_round(member)) {
        if (resume.succeeded && member.place == Place::running) succeed(member, turn);
        pass_on_notice(member, turn);
        // It may have been away when one of them went.
        if (!round_.through_gone.empty()) send_peers_to(member, turn);
        return;
    }
    turn.send(member.connection, native::RoundEnded{resume.round, round_.reason, round_.final, round_.why});
    if (member.place != Place::waiting) return;
    // It says that workers run here which it had said to be gone: they must go before the next seal. Where it has been
    // in no round, nothing of it can run: it joins again.
    if (!member.sealed) return erase(members_.find(member.node.incarnation), turn);
    member.workers_gone = false;
    member.reported = false;
    set_place(member, Place::draining);
}

/// True when the agent says of its round what is known of it, and its rank is free. All members may come back, one
/// after another: they are looked through only where some are not in the running round.
bool Job::agrees(const native::Resume& resume) const {
    const auto& told = resume.as_assigned;
    const auto restarts = round_.taught.agreed ? restarts_used_ : round_.taught.restarts_used;
    const auto holds_rank = [&](const auto& other) {
        return other.second.round == resume.round && other.second.group_rank == told.group_rank;
    };
    return resume.round == round_.number && told.group_world_size == round_.node_count &&
           told.restart_count == restarts && !there_.contains(told.group_rank) &&
           (there_.size() == members_.size() || std::ranges::none_of(members_, holds_rank));
}

/// It is in the round that it names only where what it says agrees with what is known.
Member& Job::add_resumed(const Arrival& arrival, const native::Resume& resume, const Turn& turn) {
    const bool in_round = agrees(resume);
    auto& member = add_member(arrival, resume.as_joined, turn);
    member.stop_grace = std::chrono::milliseconds(resume.stop_grace_ms);
    count(member, -1);
    member.round = in_round ? resume.round : no_round;
    member.group_rank = resume.as_assigned.group_rank;
    member.rank_base = resume.as_assigned.rank_base;
    count(member, +1);
    return member;
}

/// It was given up by this daemon, or is of a round that this daemon does not know. A member of the round is mostly
/// fenced since 0.9 lease; but while all of its round had lost the daemon, its peers' word let it keep its workers, and
/// they hold back their joins only until it would be fenced. Now that it hears the daemon it will not be, and stops its
/// workers with their grace: so it blocks the seal like everybody else. Nobody else does: anybody can name a round.
void Job::take_back(const Arrival& arrival, const native::Resume& resume, const Turn& turn) {
    turn.send(arrival.connection, native::RoundEnded{resume.round, RoundEndReason::node_lost, false,
                                                     cat(label(arrival.node), " was unreachable for too long")});
    const auto gone = round_.gone.find(resume.as_assigned.group_rank);
    const bool was_here = resume.round == round_.number && gone != round_.gone.end() &&
                          gone->second.incarnation == arrival.node.incarnation;
    if (!was_here) return;
    auto& member = add_resumed(arrival, resume, turn);
    member.sealed = true;
    set_place(member, Place::draining);
}

/// The first agent that a new daemon hears says which round runs. Until most of its members have said the same, it is
/// one agent's word: nothing is charged for it, and it gives no right to command.
void Job::learn_round(const Arrival& arrival, const native::Resume& resume, const Turn& turn) {
    taught_ = true;
    claimed_until_ = Instant::min();
    tiers_.resume();
    round_.number = resume.round;
    round_.sealed_at = turn.now;
    round_.node_count = round_.unfinished = resume.as_assigned.group_world_size;
    round_.taught = {.agreed = false, .restarts_used = resume.as_assigned.restart_count};
    no_seal_before_ = std::max(no_seal_before_, turn.now + lease());  // its other members have as long to come back
    auto facts = facts_of(arrival.node);
    facts.rank_count = resume.as_assigned.world_size;
    facts.rank_count_max =
        facts.rank_count * terms_.nodes_max / std::max<std::uint32_t>(resume.as_assigned.group_world_size, 1);
    turn.tell(EventKind::round_resumed,
              cat("job '", id_, "': round ", resume.round, " continues, as reported by ", label(arrival.node)), facts);
}

/// One more agent says the same of the round. With most of its members, and at least two, it is known.
void Job::note_claim(Member& member, const Turn& turn) {
    auto& taught = round_.taught;
    ++taught.claim_count;
    const auto believe = [this](Member& one) {
        count(one, -1);
        one.sealed = true;
        count(one, +1);
    };
    if (taught.agreed) return believe(member);
    if (taught.claim_count < 2 || taught.claim_count * 2 <= round_.node_count) return;
    agree(turn);
    for (auto& [incarnation, one] : members_)
        if (one.round == round_.number) believe(one);
}

/// A round of one node has nobody who could confirm it. With the secret its word counts at once. Without it, its word
/// counts when for the lease in which the job's real agent comes back nobody has contradicted it, and no other agent is
/// there, who would hear of an end that a stranger invents.
void Job::believe_alone(const Turn& turn) {
    auto& taught = round_.taught;
    if (taught.agreed || round_.node_count != 1 || taught.claim_count != 1 || taught.dissent_count > 0) return;
    const auto there = there_by_rank();
    const bool is_proven = !there.empty() && there.front()->proven;
    if (!is_proven && (turn.now < no_seal_before_ || members_.size() != 1)) return;
    agree(turn);
}

void Job::agree(const Turn& turn) {
    round_.taught.agreed = true;
    restarts_used_ = std::max(restarts_used_, round_.taught.restarts_used);
    turn.note(EventKind::job_note,
              cat("job '", id_, "': its nodes agree on round ", round_.number, ", ", restarts_text()),
              {.restart_count = restarts_used_});
}

void Job::adopt(const Arrival& arrival, const native::Resume& resume, const Turn& turn) {
    if (round_.number == no_round) learn_round(arrival, resume, turn);
    auto& member = add_resumed(arrival, resume, turn);
    const bool in_round = member.round != no_round;
    if (in_round) note_claim(member, turn);
    if (in_round && round_.running()) {
        set_place(member, Place::running);
        if (resume.succeeded) succeed(member, turn);
        pass_on_notice(member, turn);
        return;
    }
    set_place(member, Place::draining);
    if (round_.ended && round_.number == resume.round)
        return turn.send(member.connection, native::RoundEnded{resume.round, round_.reason, round_.final, round_.why});
    auto why = cat("after a restart of the daemon ", label(arrival.node), " and others ran different rounds");
    turn.send(arrival.connection, native::RoundEnded{resume.round, RoundEndReason::daemon_restarted, false, why});
    // The round goes on where more of its members have been heard than of others.
    if (round_.running() && ++round_.taught.dissent_count >= round_.taught.claim_count)
        end_round(RoundEndReason::daemon_restarted, std::move(why), turn);
}

}  // namespace muster::rendezvous
