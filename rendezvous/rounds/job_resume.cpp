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
        turn.send(arrival.connection, *ending_);
        return true;
    }
    next_round_ = std::max(next_round_, resume.round + 1);
    const auto found = members_.find(arrival.node.incarnation);
    if (found != members_.end()) {
        resume_known(found->second, resume, turn);
    } else if (round_.number == no_round || turn.now < no_seal_before_) {
        give_way_to(arrival, resume.as_joined, turn);
        if (is_refused(arrival, resume.as_joined, turn)) return false;
        adopt(arrival, resume, turn);
    } else {
        take_back(arrival, resume, turn);
    }
    settle(turn);
    return true;
}

void Job::resume_known(Member& member, const native::Resume& resume, const Turn& turn) {
    const bool current = resume.round == round_.number && member.round == round_.number;
    if (current) member.rank_base = resume.as_assigned.rank_base;
    if (current && in_running_round(member)) {
        if (resume.succeeded && member.place == Place::running) set_place(member, Place::succeeded);
        pass_on_notice(member, turn);
        // It may have been away when one of them went.
        if (!round_.through_gone.empty()) send_peers({member.connection}, turn);
        return;
    }
    // It says that workers run here which it had said to be gone: they must go before the next seal.
    if (member.place == Place::waiting) {
        member.workers_gone = false;
        member.reported = false;
        set_place(member, Place::draining);
    }
    turn.send(member.connection, native::RoundEnded{resume.round, round_.reason, round_.final, round_.why});
}

void Job::send_ended(const Member& member, const Turn& turn) const {
    turn.send(member.connection, native::RoundEnded{round_.number, round_.reason, round_.final, round_.why});
}

/// An agent that says of itself which round it is in. A rank is held by one.
Member& Job::add_resumed(const Arrival& arrival, const native::Resume& resume, const Turn& turn) {
    const auto group_rank = resume.as_assigned.group_rank;
    const bool rank_taken = std::any_of(members_.begin(), members_.end(), [&](const auto& other) {
        return other.second.round == resume.round && other.second.group_rank == group_rank;
    });
    auto& member = add_member(arrival, resume.as_joined, turn);
    count(member, -1);
    member.round = rank_taken ? no_round : resume.round;
    member.group_rank = group_rank;
    member.rank_base = resume.as_assigned.rank_base;
    count(member, +1);
    return member;
}

/// It was given up. Mostly it is fenced since 0.9 lease; but while all of its round had lost the daemon, its peers'
/// word let it keep its workers, and they hold back their joins only until it would be fenced. Now that it hears the
/// daemon it will not be, and stops its workers with their grace: so it blocks the seal like everybody else.
void Job::take_back(const Arrival& arrival, const native::Resume& resume, const Turn& turn) {
    turn.send(arrival.connection, native::RoundEnded{resume.round, RoundEndReason::node_lost, false,
                                                     cat(label(arrival.node), " was unreachable for too long")});
    // It may be of a life of the job that this daemon does not know.
    const auto count_max = terms_.restarts_window_ms > 0 ? resume.as_assigned.restart_count : terms_.restarts_max;
    restarts_used_ = std::max(restarts_used_, std::min(resume.as_assigned.restart_count, count_max));
    if (members_.size() < config_.nodes_max) set_place(add_resumed(arrival, resume, turn), Place::draining);
}

void Job::adopt(const Arrival& arrival, const native::Resume& resume, const Turn& turn) {
    const auto& told = resume.as_assigned;
    if (round_.number == no_round) {
        taught_ = true;
        round_.number = resume.round;
        round_.node_count = round_.unfinished = told.group_world_size;
        restarts_used_ = told.restart_count;
        no_seal_before_ = std::max(no_seal_before_, turn.now + lease());  // its other members have as long to come back
        turn.step.why.push_back(
            cat("job '", id_, "': round ", resume.round, " continues, as reported by ", label(arrival.node)));
    }
    auto& member = add_resumed(arrival, resume, turn);
    const bool agrees = round_.running() && member.round == round_.number &&
                        round_.node_count == told.group_world_size && told.group_rank < round_.node_count &&
                        restarts_used_ == told.restart_count;
    restarts_used_ = std::max(restarts_used_, told.restart_count);
    if (agrees) {
        set_place(member, Place::running);
        if (resume.succeeded) set_place(member, Place::succeeded);
        pass_on_notice(member, turn);
        return;
    }
    set_place(member, Place::draining);
    if (round_.ended && round_.number == resume.round) return send_ended(member, turn);
    auto why = cat("after a restart of the daemon ", label(arrival.node), " and others ran different rounds");
    turn.send(arrival.connection, native::RoundEnded{resume.round, RoundEndReason::daemon_restarted, false, why});
    if (round_.running()) end_round(RoundEndReason::daemon_restarted, std::move(why), turn);
}

}  // namespace muster::rendezvous
