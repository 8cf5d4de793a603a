// The actions that follow from the facts recorded by supervisor.cpp: every step ends in settle().
#include <algorithm>
#include <utility>

#include "agent/supervision/supervisor.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

bool Supervisor::all_ended() const {
    return std::all_of(round_->workers.begin(), round_->workers.end(),
                       [this](const Worker& worker) { return is_done(worker); });
}

/// The leaders, and what they left in their groups. (What has left its group as well, a daemon, waits for KillTree.)
bool Supervisor::all_gone() const {
    return all_ended() && std::none_of(round_->workers.begin(), round_->workers.end(),
                                       [](const Worker& worker) { return worker.group_left; });
}

bool Supervisor::drained() const {
    return round_->tree_empty && all_ended();
}

void Supervisor::settle(Instant now) {
    if (round_ && now >= round_->held_until) release_held(now);
    if (round_ && !drained()) settle_workers(now);
    settle_kept(now);
    settle_health(now);
    if (ending_ && ((!kept_ && (!round_ || drained())) || stuck_)) {
        finish();
    } else if (begun_) {
        if (round_ && drained()) settle_round();
        const bool ending = kept_ && kept_->is_ending();
        if (!round_ && !ending) settle_join();
    }
    phase_ = derive_phase();
}

/// The stop signal of this agent by which the worker ended, or by whose handler it exited; 0: none. Not ours: no drain
/// is under way.
int Supervisor::outer_signal(const WorkerEnded& ended) const {
    if (ended.unfed || ended.orphaned) return 0;
    const auto* by_signal = std::get_if<Signaled>(&ended.end);
    const auto* exited = std::get_if<Exited>(&ended.end);
    const int signal = by_signal != nullptr ? by_signal->signal : exited != nullptr ? exited->code - 128 : 0;
    const auto& stops = config_.stop_signals;
    return std::find(stops.begin(), stops.end(), signal) != stops.end() ? signal : 0;
}

/// Whether the event waits. Where a scheduler stops every process of the job, a worker may end before this agent has
/// got its own signal, and those beside it because of that; then none of them has failed.
bool Supervisor::hold(const HostEvent& event, Instant now) {
    if (!round_ || round_->drain) return false;
    const auto* ended = std::get_if<WorkerEnded>(&event.event);
    if (round_->held.empty()) {
        const int signal = ended != nullptr ? outer_signal(*ended) : 0;
        if (signal == 0 || event.notes.cause.kind != CauseKind::unknown) return false;
        say(cat("local rank ", ended->local_rank, " ended with ", describe(ended->end),
                ", without a signal from muster: waiting ", describe(config_.signals_are_one_within),
                " for the same signal to this agent"));
        round_->held_until = now + config_.signals_are_one_within;
    } else if (ended != nullptr ? ended->unfed || ended->orphaned
                                : !std::holds_alternative<WorkerStarted>(event.event) &&
                                      !std::holds_alternative<GroupEmpty>(event.event)) {
        return false;
    }
    if (ended != nullptr) {
        MUSTER_CHECK(ended->local_rank < round_->workers.size(), ended->local_rank);
        round_->workers[ended->local_rank].end_held = true;
    }
    round_->held.push_back(event);
    return true;
}

void Supervisor::release_held(Instant now) {
    if (!round_) return;
    round_->held_until = no_deadline;
    for (const auto& event : std::exchange(round_->held, {})) on_host_event(event, now);
}

void Supervisor::settle_workers(Instant now) {
    auto& round = *round_;
    if (round.drain) return settle_drain(now);
    settle_notice(now);
    settle_replaced(now);
    if (round.drain) return settle_drain(now);
    const bool all_succeeded = std::all_of(round.workers.begin(), round.workers.end(),
                                           [](const Worker& worker) { return worker.fate == WorkerState::succeeded; });
    if (all_succeeded && !round.success_reported) {
        round.success_reported = true;
        say("all workers of this node exited 0; waiting for the other nodes");
        act(ReportSucceeded{});
    }
}

void Supervisor::settle_drain(Instant now) {
    settle_held(now);
    auto& drain = *round_->drain;
    if (drain.forced_at) {
        if (now >= *drain.forced_at + config_.kill_wait) on_tree_stuck("the workers' processes");
    } else if (drain.killed_at) {
        if (now < *drain.killed_at + config_.kill_wait) return;
        say("the guardian did not kill the remaining processes; continuing without it");
        drain.forced_at = now;
        act(KillGuardian{});
    } else if (all_gone() || now >= drain.kill_at) {
        if (!all_gone() && !drain.hurried) report_killed();
        if (drain.hold_until != no_deadline) keep_only(Keep::held);
        drain.killed_at = now;
        act(KillTree{});
    } else {
        signal_groups();
    }
}

/// The grace is over.
void Supervisor::report_killed() {
    std::string ranks;
    for (std::uint32_t local_rank = 0; local_rank < round_->workers.size(); ++local_rank)
        if (const auto& worker = round_->workers[local_rank]; !is_done(worker) || worker.group_left)
            ranks += cat(ranks.empty() ? "rank " : ",", round_->assignment.rank_base + local_rank);
    auto killed = cat(ranks, " had not ended ", describe(config_.grace), " after ", signal_name(round_->drain->signal),
                      " (--shutdown-timeout) and was killed");
    tell(cat(killed, "; if workers need more time, e.g. to save, raise --shutdown-timeout"));
    if (auto* stopped = ending_ ? std::get_if<Cancelled>(&*ending_) : nullptr) stopped->killed = std::move(killed);
}

/// The daemon tells all nodes, this one too. Where it cannot be reached the time until the machine goes must not be
/// lost with waiting for it; a runtime's ranks take a notice over from each other.
void Supervisor::settle_notice(Instant now) {
    if (now >= round_->notice_due) {
        round_->notice_due = no_deadline;
        if (!may_be_noticed()) return;
        round_->echo_owed = true;
        give_notice(round_->own_notice, " (no answer from the rendezvous; other nodes receive it when it answers)",
                    now);
    }
    const bool all_started = std::ranges::all_of(round_->workers, &Worker::answered);
    if (round_->notice_owed && all_started) act(PreemptWorkers{*std::exchange(round_->notice_owed, std::nullopt)});
}

void Supervisor::give_notice(std::string why, std::string_view remark, Instant now) {
    round_->noticed_at = now;
    tell(cat("notice to this node's workers: ", why, remark));
    round_->notice_owed = std::move(why);
}

/// A leader that is a shell may die of the signal at once and leave the program that it ran: that gets the signal too,
/// and what is left of the same grace.
void Supervisor::signal_groups() {
    for (std::uint32_t local_rank = 0; local_rank < round_->workers.size(); ++local_rank) {
        auto& worker = round_->workers[local_rank];
        if (!worker.group_left || std::exchange(worker.group_signalled, true)) continue;
        say(cat("local rank ", local_rank, " ended and left processes in its group: sending them ",
                signal_name(round_->drain->signal)));
        act(SignalGroup{local_rank, round_->drain->signal});
    }
}

/// The round is drained and this agent goes on: with the next round, or waiting for the daemon's last word.
void Supervisor::settle_round() {
    if (round_->ended) report_round();
    const bool goes_on = round_->ended ? !round_->ended->final : round_->fenced;
    if (!goes_on) return;
    round_.reset();
    if (store_open_) act(CloseStore{});
    store_open_ = false;
}

void Supervisor::settle_join() {
    if (!store_open_ && !store_opening_) {
        store_opening_ = true;
        act(OpenStore{});
    } else if (store_open_ && !joined_ && config_.checks_health && check_ != Check::done) {
        if (std::exchange(check_, Check::running) == Check::due) act(CheckHealth{});
    } else if (store_open_ && !joined_) {
        send_join();
    }
}

void Supervisor::send_join() {
    joined_ = true;
    known_ = true;
    native::Join join = config_.join;
    join.last_round = last_round_;
    join.store_port = ports_.store;
    join.peer_port = ports_.peer;
    join.sources = ports_.sources;
    join.unhealthy = unhealthy_;
    act(SendJoin{std::move(join)});
}

void Supervisor::report_round() {
    if (round_->report_sent) return;
    round_->report_sent = true;
    const auto stopped = std::count_if(round_->workers.begin(), round_->workers.end(),
                                       [](const Worker& worker) { return worker.fate == WorkerState::stopped; });
    native::RoundReport report;
    report.round = round_->assignment.round;
    report.failures = std::move(round_->failed_late);
    report.stopped_count = static_cast<std::uint32_t>(stopped);
    act(ReportRound{std::move(report)});
}

void Supervisor::finish() {
    if (round_ && round_->ended && !unreachable_ && drained()) report_round();
    const bool all_saved =
        round_ && std::all_of(round_->workers.begin(), round_->workers.end(),
                              [](const Worker& worker) { return worker.fate == WorkerState::saved; });
    if (const auto* stopped = std::get_if<Cancelled>(&*ending_); stopped != nullptr && all_saved)
        ending_ = Drained{cat("after ", signal_name(stopped->signal), " all of its workers saved and left (exit code ",
                              saved_and_left_code, ")")};
    if (job_over_) {
        act(AcknowledgeEnd{});
    } else if (known_ && !unreachable_) {
        if (const auto* cancelled = std::get_if<Cancelled>(&*ending_))
            act(SendLeave{cat("stopped by ", signal_name(cancelled->signal))});
        else if (const auto* leaving = std::get_if<Drained>(&*ending_))
            act(SendLeave{leaving->why});
        else if (const auto* failed = std::get_if<AgentFailed>(&*ending_))
            act(SendLeave{failed->why});
    }
    if (store_open_ || store_opening_) act(CloseStore{});
    act(Finish{*ending_});
    phase_ = Phase::done;
}

Phase Supervisor::derive_phase() const {
    if (phase_ == Phase::done) return Phase::done;
    if (!begun_) return Phase::idle;
    if (!round_) return Phase::joining;
    if (drained()) return Phase::drained;
    if (round_->drain) return Phase::draining;
    const bool answered = std::all_of(round_->workers.begin(), round_->workers.end(),
                                      [](const Worker& worker) { return worker.answered; });
    return answered ? Phase::running : Phase::starting;
}

}  // namespace muster::agent
