// The one place where a job's phase changes. See job.h for the order, STATES.md for the reasons.
#include <algorithm>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"

namespace muster::rendezvous {

using native::JobOutcome;
using native::RoundEndReason;

void Job::settle(const Turn& turn) {
    if (forgotten_) return;
    unkept_ = true;
    settled_at_ = turn.now;
    if (!ending_) settle_doubtful(turn);
    if (settle_over(turn)) return;
    if (!settle_running(turn) && !settle_ended(turn)) settle_gathering(turn);
    if (!ending_) {
        refuse_others(turn);
        send_waiting(turn);
    }
    send_job_seen(turn);
}

/// How long the seal waits for workers that only their agent's word says to run: a lease to be heard, and then their
/// own --shutdown-timeout. A stranger can name any, so without the secret it counts up to the job's lost timeout.
Duration Job::doubt_lasts(bool proven, Duration stop_grace) const {
    const auto longest = std::max(config_.stop_grace, lost_timeout());
    const auto grace = stop_grace == Duration::zero() ? config_.stop_grace : stop_grace;
    return lease() + (proven ? grace : std::min(grace, longest));
}

/// Agents that only say that workers of a round run on their nodes. After a restart of the daemon it may be true, and
/// then each has time to stop its workers. After that it counts no more: whoever connects can say so. One after the
/// other cannot prolong it, because they are taken in for a lease only (on_resume).
void Job::settle_doubtful(const Turn& turn) {
    doubt_ends_ = no_deadline;
    if (tally_.doubtful == 0) return;
    for (auto at = members_.begin(); at != members_.end();) {
        const auto member = at++;
        auto& doubted = member->second;
        if (doubted.sealed || (doubted.place != Place::draining && doubted.place != Place::lost)) continue;
        if (doubted.doubt_ends == no_deadline)
            doubted.doubt_ends = turn.now + doubt_lasts(doubted.proven, doubted.stop_grace);
        if (turn.now < doubted.doubt_ends) {
            doubt_ends_ = std::min(doubt_ends_, doubted.doubt_ends);
            continue;
        }
        const std::string why = "it did not stop its workers in time, and no other node confirms its round";
        turn.tell(EventKind::node_lost, cat("job '", id_, "': ", label(doubted.node), " is not waited for: ", why),
                  facts_of(doubted));
        if (doubted.connected()) turn.step.actions.push_back(CloseConnection{doubted.connection, why});
        erase(member, turn);
    }
}

bool Job::settle_over(const Turn& turn) {
    if (!ending_ && !members_.empty()) return false;
    const bool lingered = ending_ && turn.now >= ended_at_ + config_.end_linger;
    // No member is left that another run under this name could disturb.
    const bool anew = std::ranges::any_of(held_, [](const auto& entry) { return entry.second.anew; });
    const bool abandoned = !ending_ && turn.now >= given_up_have_stopped_at() &&
                           (anew || round_.number == no_round || left_ || turn.now >= abandoned_at());
    const bool is_over = ending_ ? members_.empty() || lingered : abandoned && !anew;
    if (is_over && !std::exchange(announced_, true)) turn.step.actions.push_back(JobForgotten{id_});
    // Nobody had joined a job that its first Join was refused.
    if (abandoned && !terms_by_.empty())
        turn.note(EventKind::job_ended, cat("job '", id_, "' is given up: it has no node any more"),
                  {.outcome = "abandoned", .restart_count = restarts_used_});
    // If a node was still expected, it may join late and receives JobEnded. Otherwise the next join under this name
    // starts a new job.
    const bool expected = ending_ && round_.node_count < terms_.nodes_max;
    if (lingered && !anew)
        for (const auto& [connection, held] : std::exchange(held_, {})) tell_end(held.arrival, turn);
    forgotten_ = abandoned || (lingered && (anew || turn.now >= remembered_until())) ||
                 (ending_ && members_.empty() && (anew || !expected));
    return true;
}

bool Job::settle_running(const Turn& turn) {
    if (!round_.running()) return false;
    believe_alone(turn);
    if (round_.unfinished == 0 && round_.taught.agreed) {
        finish(JobOutcome::succeeded, "all workers exited 0", turn);
        return true;
    }
    if (taught_ && turn.now >= no_seal_before_) {
        taught_ = false;
        const auto missing = round_.unfinished - std::min(tally_.running, round_.unfinished);
        if (missing > 0)
            end_round(RoundEndReason::node_lost,
                      cat(missing, missing == 1 ? " node" : " nodes", " of round ", round_.number,
                          " did not reconnect after a restart of the daemon"),
                      turn);
    }
    if (round_.running() && round_.unfinished == 0 && turn.now >= no_seal_before_)
        end_round(RoundEndReason::daemon_restarted,
                  cat("no other node confirms round ", round_.number, " after a restart of the daemon"), turn);
    if (round_.running()) gather_joiners(turn);
    return round_.running();
}

/// Late joiners below the maximum cause one restart together, after the last call.
void Job::gather_joiners(const Turn& turn) {
    const auto joiners = tally_.gathered - tally_.excluded;
    if (joiners == 0 || room() == 0) {
        call_open_ = false;
        call_ends_ = no_deadline;
        return;
    }
    if (!call_open_) {
        call_open_ = true;
        call_ends_ = turn.now + last_call();
    }
    if (joiners < room() && turn.now < call_ends_) return;
    end_round(RoundEndReason::node_joined, cat(joiners, joiners == 1 ? " node" : " nodes", " joined"), turn);
}

bool Job::settle_ended(const Turn& turn) {
    if (round_.ended && round_.final) {
        // The verdict needs all reports. A silent member stops counting after its lease; a member that drains longer
        // than the lost timeout receives the verdict before it has finished.
        if (tally_.unreported == 0 || turn.now >= reports_awaited_since_ + lost_timeout())
            finish(JobOutcome::failed, round_.final_why, turn);
        return true;
    }
    // S8: workers of the ended round may still run. (Of another one, where an agent contradicts itself.)
    if (tally_.draining + tally_.lost > 0) return true;
    if (!round_.ended) return false;
    decide_budget(turn);
    return ending_.has_value();
}

void Job::settle_gathering(const Turn& turn) {
    if (may_seal(turn)) {
        take_events(turn);  // Those up to here are of the last round.
        return seal(turn);
    }
    const auto hold = hold_at(turn.now);
    if (std::exchange(hold_told_, hold) != hold) waiting_changed_ = true;
}

bool Job::may_seal(const Turn& turn) {
    if (tally_.gathered < nodes_needed()) {
        call_open_ = false;
        call_ends_ = no_deadline;
        // Not while nodes are away that may come back: after a restart of the daemon the first to return may be parked.
        if (tally_.gathered + tally_.away < nodes_needed()) short_of_nodes_ = true;
        return false;
    }
    if (short_of_nodes_ && !call_open_) {
        call_open_ = true;
        call_ends_ = turn.now + last_call();
    }
    if (hold_at(turn.now) != Hold::none || lacks_host()) return false;
    // A sick node has come as well: nobody else is to be waited for in its place.
    const auto came = tally_.gathered - tally_.excluded + tally_.parked + tally_.doubted;
    const bool complete = came >= wanted();
    if (short_of_nodes_ && !complete && turn.now < call_ends_) return false;
    if (tally_.away > 0) return false;  // it reconnects or is dropped within the reconnect window
    return !terms_.fixed_world || chosen().size() == terms_.nodes_max;
}

/// A restarted daemon may not know of a running round yet. A full set of new agents shows that there is none, unless
/// they were started while the daemon was down.
Job::Hold Job::hold_at(Instant now) const {
    if (now < given_up_have_stopped_at()) return Hold::given_up;
    const bool full = config_.start_hold == StartHold::until_full && tally_.fresh >= terms_.nodes_max;
    return now < no_seal_before_ && !full ? Hold::start : Hold::none;
}

/// An embedded daemon seals no round without its own node. So after the launcher's death its round never has all nodes
/// alive, and the launcher's next daemon cannot seal beside it.
bool Job::lacks_host() const {
    return config_.embedded_for == id_ && tally_.hosts == 0;
}

void Job::end_round(RoundEndReason reason, std::string why, const Turn& turn) {
    MUSTER_CHECK(round_.running(), round_.number);
    SendTo told;
    bool all_there = true;
    for (auto& [incarnation, member] : members_) {
        if (member.round != round_.number || !in_running_round(member)) {
            all_there = all_there && member.place != Place::lost;
            continue;
        }
        member.workers_gone = member.place == Place::succeeded;
        set_place(member, Place::draining);
        all_there = all_there && member.connected();
        if (member.connected()) told.connections.push_back(member.connection);
    }
    if (reason == RoundEndReason::node_lost || reason == RoundEndReason::node_left) tiers_.lose_node();
    round_.ended = true;
    round_.reason = reason;
    round_.why = std::move(why);
    round_.ended_at = reports_awaited_since_ = turn.now;
    // Only victims so far, or a node that may be lost: it may still turn out to be a node's loss, which is not charged.
    round_.final = reason == RoundEndReason::worker_failed && round_.taught.agreed && all_there &&
                   round_.failures.has_own_fault() && (budget_spent() || failed_early()) && !left_for_drain();
    if (round_.final) round_.final_why = why_no_restart();
    round_.settled_budget = round_.final;
    taught_ = false;
    if (std::exchange(all_silent_, false)) check_again_at(turn.now);  // nobody is spared any more
    call_open_ = false;
    call_ends_ = no_deadline;
    short_of_nodes_ = false;
    told.message = native::RoundEnded{round_.number, reason, round_.final, round_.why};
    if (!told.connections.empty()) turn.step.actions.push_back(std::move(told));
    auto facts = spent_facts();
    facts.reason = name(reason);
    facts.outcome = round_.final ? "failed" : "";
    if (reason == RoundEndReason::worker_failed || reason == RoundEndReason::node_lost)
        facts.detecting_ms = detecting_ms(turn.now);
    turn.tell(EventKind::round_ended, cat("job '", id_, "': round ", round_.number, " ended: ", round_.why),
              std::move(facts));
}

Verdict Job::verdict() const {
    Verdict verdict;
    verdict.round = round_.number;
    verdict.stopped_count = round_.stopped_count;
    verdict.activities = round_.activities.list();
    if (round_.failures.empty()) return verdict;
    verdict.first = round_.failures.first_cause(config_.victim_window);
    verdict.other_failure_count = static_cast<std::uint32_t>(round_.failures.count() - 1);
    verdict.groups = round_.failures.groups(config_.victim_window);
    return verdict;
}

void Job::finish(JobOutcome outcome, std::string why, const Turn& turn) {
    ending_ = native::JobEnded{outcome, verdict(), restarts_used_, std::move(why)};
    ended_at_ = turn.now;
    turn.tell(EventKind::job_ended,
              cat("job '", id_, "' ", outcome == JobOutcome::succeeded ? "succeeded: " : "failed: ", ending_->why),
              {.outcome = std::string(name(outcome)),
               .restart_count = restarts_used_,
               .step = last_step(),
               .checkpoint_step = round_.checkpoint_step,
               .data_wait_ms = steps_.data_wait_ms(),
               .sections = steps_.sections()});
    take_events(turn);
    ending_->goodput = goodput_.sentence(turn.now);
    ended_on_.clear();
    SendTo told{{}, *ending_};
    SendTo strangers{{}, end_for_strangers()};
    const bool is_plain = strangers.message == told.message;
    for (const auto& [incarnation, member] : members_) {
        ended_on_.push_back(member.node.host);
        if (!member.connected()) continue;
        auto& group = member.sealed || member.proven || is_plain ? told : strangers;
        group.connections.push_back(member.connection);
    }
    for (auto* group : {&told, &strangers})
        if (!group->connections.empty()) turn.step.actions.push_back(std::move(*group));
}

/// The verdict has hosts, paths and the last words of workers. Who was in no round and has proved nothing gets the end
/// without it.
native::JobEnded Job::end_for_strangers() const {
    auto end = *ending_;
    end.verdict = {};
    end.verdict.round = ending_->verdict.round;
    return end;
}

void Job::tell_end(const Arrival& arrival, const Turn& turn) const {
    const auto found = members_.find(arrival.node.incarnation);
    const bool was_member = found != members_.end() && found->second.sealed;
    turn.send(arrival.connection, arrival.proven || was_member ? *ending_ : end_for_strangers());
}

/// When a job without members is given up. One that never had any waits for nobody.
Instant Job::abandoned_at() const {
    return empty_since_ == no_deadline ? settled_at_ : empty_since_ + lost_timeout();
}

/// A member that has not acknowledged the end may be cut off. It looks for the daemon for its lost timeout, and would
/// run its round again beside a job that nobody remembers.
Instant Job::remembered_until() const {
    return ended_at_ + (members_.empty() ? config_.end_linger : std::max(config_.end_linger, lost_timeout()));
}

Instant Job::deadline() const {
    if (forgotten_) return settled_at_;  // at once
    auto first = no_deadline;
    const auto consider = [&](Instant when) {
        if (when > settled_at_) first = std::min(first, when);
    };
    if (ending_) {
        consider(ended_at_ + config_.end_linger);
        consider(remembered_until());
        return first;
    }
    consider(given_up_have_stopped_at());
    if (members_.empty()) {
        consider(abandoned_at());
        return first;
    }
    first = std::min(first, next_check_);
    consider(call_ends_);
    consider(no_seal_before_);
    consider(doubt_ends_);
    if (!held_.empty()) consider(claims_until_);
    if (round_.running()) consider(seen_.due());
    if (round_.ended && round_.final) consider(reports_awaited_since_ + lost_timeout());
    if (waiting_changed_) consider(waiting_sent_at_ + config_.gathering_interval);
    return first;
}

}  // namespace muster::rendezvous
