#include "agent/supervision/supervisor.h"

#include <algorithm>
#include <utility>

#include "agent/diagnosis/early_failure.h"
#include "agent/diagnosis/failure_kind.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// Parts of the grace after which a child that a stopped worker waits for gets the signal too. Of 30 s: 3 s for one
/// that does nothing, 10 s for one that does, as it may be saving.
constexpr int awaited_idle_part = 10;
constexpr int awaited_busy_part = 3;

std::string pid_list(const std::vector<std::int32_t>& pids) {
    std::string out;
    for (const auto pid : pids) out += cat(out.empty() ? "" : ", ", pid);
    return out;
}

}  // namespace

std::string_view name(Phase phase) {
    return enumerator_name(phase);
}

Supervisor::Supervisor(SupervisorConfig config) : config_(std::move(config)) {
    MUSTER_CHECK(config_.join.slots > 0, config_.join.slots);
}

SupervisorStep Supervisor::step(const SupervisorEvent& event, Instant now) {
    step_ = {};
    if (phase_ == Phase::done) return {};
    std::visit([&](const auto& happened) { on(happened, now); }, event);
    settle(now);
    return std::move(step_);
}

Instant Supervisor::deadline() const {
    if (phase_ == Phase::done) return no_deadline;
    if (kept_ && kept_->is_ending()) return kept_->killed_at ? *kept_->killed_at + config_.kill_wait : kept_->kill_at;
    if (!round_) return check_again_at_;
    if (drained()) return no_deadline;
    if (!round_->drain) {
        auto due = std::min(round_->notice_due, round_->held_until);
        for (const auto& worker : round_->workers) due = std::min(due, worker.replace_until);
        return due;
    }
    const auto& drain = *round_->drain;
    if (drain.forced_at) return *drain.forced_at + config_.kill_wait;
    return drain.killed_at ? *drain.killed_at + config_.kill_wait : std::min(drain.kill_at, drain.hold_until);
}

// ---- the events: facts are noted ----

void Supervisor::on(const Begin&, Instant) {
    MUSTER_CHECK(!begun_);
    begun_ = true;
}

void Supervisor::on(const SetUpRefused& event, Instant now) {
    if (begun_ && round_) return on_shortage(event.why, {}, now);
    MUSTER_CHECK(!begun_);
    end(SetUpFailed{event.why});
}

void Supervisor::on(const Elapsed&, Instant) {}

void Supervisor::on(const StoreOpened& event, Instant) {
    MUSTER_CHECK(store_opening_);
    store_opening_ = false;
    if (event.ports.has_error()) {
        const auto& error = event.ports.error();
        auto why = cat("the workers' store cannot be opened: ", error.context);
        if (error.code == Errc::already_exists || error.code == Errc::permission_denied)
            end(SetUpFailed{std::move(why)});  // the requested port is not available
        else
            end(AgentFailed{std::move(why)});
        return;
    }
    store_open_ = true;
    ports_ = event.ports.value();
}

void Supervisor::on(const DaemonMessage& event, Instant now) {
    const auto& message = event.message;
    const bool is_of_a_round = std::holds_alternative<native::Assigned>(message) ||
                               std::holds_alternative<native::RoundEnded>(message) ||
                               std::holds_alternative<native::NoticeGiven>(message);
    if (is_of_a_round && kept_ && kept_->is_ending())
        kept_->later.push_back(message);  // S4: they are dying still
    else
        on_daemon(message, now);
}

void Supervisor::on_daemon(const native::Message& message, Instant now) {
    if (const auto* assigned = std::get_if<native::Assigned>(&message)) {
        on_assigned(*assigned, now);
    } else if (const auto* parked = std::get_if<native::Parked>(&message)) {
        parked_ = true;
        release_kept("this node is a spare");
        const auto before = parked->position;
        say(!parked->why.empty() ? parked->why
            : before == 0        ? "parked as a spare, first in the queue"
                          : cat("parked as a spare, after ", before, before == 1 ? " other spare" : " other spares"));
    } else if (const auto* ended = std::get_if<native::RoundEnded>(&message)) {
        on_round_ended(*ended, now);
    } else if (const auto* drain = std::get_if<native::Drain>(&message)) {
        // Not a round that is over: the workers may save, which may take their peers on other nodes.
        const bool running = round_ && !round_->drain;
        tell(cat("draining this node: ", drain->why, running ? "; stopping its workers" : ""));
        end(Drained{drain->why});
        begin_drain(sigterm, Tell::notice, cat("draining this node: ", drain->why), now);
    } else if (const auto* notice = std::get_if<native::NoticeGiven>(&message)) {
        on_notice(*notice, now);
    } else if (const auto* over = std::get_if<native::JobEnded>(&message)) {
        on_job_ended(*over, now);
    } else if (const auto* refused = std::get_if<native::Refused>(&message)) {
        say(cat("refused: ", refused->why));
        unreachable_ = true;
        end(JoinRefused{*refused});
        begin_drain(sigterm, Tell::round_over, cat("this node was refused: ", refused->why), now);
    }
    // Anything else is the client's own business and does not come here.
}

void Supervisor::on_notice(const native::NoticeGiven& notice, Instant now) {
    if (!round_ || round_->drain || !may_be_noticed()) return;
    round_->notice_due = no_deadline;
    // A second notice hurries the workers.
    if (std::exchange(round_->echo_owed, false))
        return say(cat("notice from the daemon: ", notice.why, "; this node's workers have received it already"));
    give_notice(notice.why, "", now);
}

void Supervisor::on_assigned(const native::Assigned& assignment, Instant now) {
    if (round_ || !joined_ || ending_ || assignment.round <= last_round_) {
        say(cat("assignment of round ", assignment.round, " ignored in state ", name(phase_), " after round ",
                last_round_));
        return;
    }
    joined_ = false;
    forget_health();
    last_round_ = assignment.round;
    last_end_.clear();
    round_ = RoundState{};  // clang 14 refuses emplace() of a nested type with initialisers
    round_->assignment = assignment;
    round_->workers.resize(config_.join.slots);
    for (auto& worker : round_->workers) worker.started_at = now;
    note_assigned();
    for (const auto& note : assignment.notes)
        if (std::ranges::find(last_notes_, note) == last_notes_.end()) tell(note);
    last_notes_ = assignment.notes;
    const auto kept = take_kept();
    for (const auto local_rank : kept) round_->workers[local_rank].answered = true;
    act(StartWorkers{assignment, kept});
    if (!kept.empty()) act(KeepWorkers{});
    if (early_notice_) give_notice(*std::exchange(early_notice_, std::nullopt), "", now);
}

void Supervisor::on_round_ended(const native::RoundEnded& ended, Instant now) {
    if (round_ && round_->assignment.round == ended.round && round_->ended && round_->ended->final && !ended.final) {
        // Another daemon took over, which does not know that the budget was spent.
        say(cat("round ", ended.round, " was not the last one: ", ended.why));
        round_->ended = ended;
        return;
    }
    if (!round_ || round_->assignment.round != ended.round || round_->ended) {
        say(cat("end of round ", ended.round, " ignored in state ", name(phase_)));
        return;
    }
    const std::string over = cat("round ", ended.round, " ended: ", ended.why);
    // With the budget spent, what looks like a victim's end is the job's, unless a node turns out to be lost.
    const auto& terms = config_.join.terms;
    const bool may_be_last = ended.reason == native::RoundEndReason::worker_failed && terms.restarts_window_ms == 0 &&
                             round_->assignment.restart_count >= terms.restarts_max;
    if (ended.final || round_->fenced)
        say(over);
    else if (may_be_last)
        tell(cat(over, all_gone() ? "" : "; stopping this node's workers", "; determining the first cause"));
    else if (ended.reason == native::RoundEndReason::worker_failed)
        // A worker that saved and left, or a crash loop, ends the job: that is known when all nodes have reported.
        tell(cat(over, all_gone() ? "" : "; stopping this node's workers",
                 "; the next round follows unless the job ends"));
    else
        tell(cat(over, all_gone() ? "; continuing" : "; stopping this node's workers, then continuing"));
    round_->ended = ended;
    if (!round_->fenced) last_end_ = over;
    // Workers of a node that leaves may save, but not with peers that are gone.
    if (round_->drain && !all_ended() && ended.reason == native::RoundEndReason::node_lost)
        act(SendRoundOver{ended.why});
    begin_drain(sigterm, Tell::round_over, ended.why, now);
}

void Supervisor::on_job_ended(const native::JobEnded& ended, Instant now) {
    say(cat("the job ended: ", ended.why, ended.goodput.empty() ? "" : "; ", ended.goodput));
    job_over_ = true;
    const auto part = last_round_ != no_round ? NodePart::ran : parked_ ? NodePart::spare : NodePart::late;
    if (ended.outcome == native::JobOutcome::succeeded)
        end(JobSucceeded{part, ended.goodput, unhealthy_});
    else
        end(JobFailed{ended, part, unhealthy_});
    begin_drain(sigterm, Tell::round_over, cat("the job ended: ", ended.why), now);
}

void Supervisor::on(const ClientFenced& event, Instant now) {
    fence(cat("killing the workers at once: ", event.why), now);
}

void Supervisor::on(const ClientLost& event, Instant now) {
    say(cat("no rendezvous: ", event.why));
    unreachable_ = true;
    end(NoRendezvous{event.why, last_end_});
    begin_drain(sigterm, Tell::round_over, cat("no rendezvous: ", event.why), now);
}

void Supervisor::on(const StopRequested& event, Instant now) {
    const bool repeats = event.signal == config_.repeated_signal;
    if (stop_count_ > 0 && repeats)
        return say(cat(signal_name(event.signal), " again: a repetition by the scheduler, ignored"));
    ++stop_count_;
    if (stop_count_ == 1) {
        if (round_ && !all_gone())
            tell(cat(signal_name(event.signal), ": stopping this node's workers; they are killed after ",
                     describe(config_.grace), repeats ? "" : ", or when the signal is repeated"));
        else
            say(cat("stop requested by ", signal_name(event.signal)));
        end(Cancelled{event.signal});
        begin_drain(event.signal, Tell::notice, cat("this node is stopped by ", signal_name(event.signal)), now);
    } else {
        tell(cat(signal_name(event.signal), " again: killing the remaining processes"));
        kill_now(now);
        kill_kept(cat(signal_name(event.signal), " again"), now);
    }
}

void Supervisor::on(const PreemptionAnnounced& event, Instant now) {
    auto why = cat(signal_name(event.signal), " to ", config_.host);
    // The job does not know this node yet, whose word would reach it when the imports of --warm-join are over.
    if (!begun_) {
        early_notice_ = std::move(why);
        return tell(cat(signal_name(event.signal),
                        ": this node has not joined the job yet; only its own workers receive "
                        "the notice, when they have started"));
    }
    tell(cat(signal_name(event.signal), ": a notice to all workers of the job"));
    const bool told =
        round_ && round_->noticed_at != Instant::min() && now < round_->noticed_at + config_.notices_are_one_within;
    if (round_ && !round_->drain && may_be_noticed() && !told) {
        round_->own_notice = why;
        round_->notice_due = std::min(round_->notice_due, now + config_.notice_wait);
    }
    act(SendCommand{{.number = 0, .verb = native::CommandVerb::notify_job, .node = {}, .why = std::move(why)}});
}

void Supervisor::on(const HostEvent& event, Instant now) {
    if (on_kept_event(event, now)) return;
    if (hold(event, now)) return;
    release_held(now);
    on_host_event(event, now);
}

void Supervisor::on_host_event(const HostEvent& event, Instant now) {
    if (const auto* started = std::get_if<WorkerStarted>(&event.event)) {
        MUSTER_CHECK(round_ && started->local_rank < round_->workers.size(), started->local_rank);
        round_->workers[started->local_rank].answered = true;
        note_start(*started);
    } else if (const auto* ended = std::get_if<WorkerEnded>(&event.event)) {
        on_worker_ended(*ended, event.notes, now);
    } else if (const auto* group = std::get_if<GroupEmpty>(&event.event)) {
        if (round_ && group->local_rank < round_->workers.size()) round_->workers[group->local_rank].group_left = false;
    } else if (std::holds_alternative<TreeEmpty>(event.event)) {
        if (round_ && round_->drain && round_->drain->killed_at) round_->tree_empty = true;
    } else if (const auto* stuck = std::get_if<TreeStuck>(&event.event)) {
        if (round_ && !drained())
            on_tree_stuck(event.notes.cause.text.empty() ? cat("processes ", pid_list(stuck->pids))
                                                         : event.notes.cause.text);
    } else if (const auto* lost = std::get_if<GuardianLost>(&event.event)) {
        on_guardian_lost(*lost, event.notes, now);
    }
}

void Supervisor::on_worker_ended(const WorkerEnded& ended, const WorkerNotes& notes, Instant now) {
    MUSTER_CHECK(round_ && ended.local_rank < round_->workers.size(), ended.local_rank);
    auto& worker = round_->workers[ended.local_rank];
    MUSTER_CHECK(worker.fate == WorkerState::running, ended.local_rank, ended.pid);
    worker.answered = true;
    worker.group_left = ended.group_left;
    const bool stayed = worker.keep == Keep::asked || worker.keep == Keep::held;
    worker.keep = Keep::no;
    if (stayed) {
        keep_only(Keep::asked);
        if (!ended.orphaned) kill_again(now);
    }
    round_->orphaned = round_->orphaned || ended.orphaned;
    if (ended.unfed || ended.orphaned || worker.hold_missed || stopped_by_us(ended, notes)) {
        worker.fate = WorkerState::stopped;
        note_end(ended, worker.fate, notes.cause);
        if (ended.unfed)
            fence("this agent was stopped for too long, so its guardian killed the workers; continuing", now);
        return;
    }
    const auto fate = saved_and_left(ended.end) ? WorkerState::saved : WorkerState::failed;
    worker.fate = succeeded(ended.end) ? WorkerState::succeeded : fate;
    note_end(ended, worker.fate, notes.cause);
    if (worker.fate == WorkerState::succeeded) return;
    if (const auto* never = std::get_if<NotStarted>(&ended.end)) {
        if (never->error_number == 0)  // this agent could not prepare it
            return on_shortage(cat("this node cannot start its workers: ", notes.message), notes, now);
        if (const auto advice = advice_on_shortage(never->error_number); !advice.empty())
            return on_shortage(cat("this node cannot start its workers: local rank ", ended.local_rank, " ",
                                   describe(ended.end), "; ", advice),
                               notes, now);
    }
    Failure failure = make_failure(ended, notes);
    if (keeps_round(worker, ended, failure)) return keep_round(worker, std::move(failure), now);
    if (worker.again_count > 0)
        failure.message +=
            cat(failure.message.empty() ? "" : "\n", "it had been started again ", worker.again_count,
                worker.again_count == 1 ? " time" : " times", " in this round (--keep-limit ", config_.keep_max, ")");
    fail_round(std::move(failure), worker.fate, now);
}

/// The operating system refuses processes, memory or a directory to this node, and would in the next round. To the
/// others the node is lost, which costs no restart.
void Supervisor::on_shortage(const std::string& why, const WorkerNotes& notes, Instant now) {
    say(why);
    if (ending_) return;  // each further worker meets the same limit
    report_failure(node_failure(FailureKind::node_lost, why, notes));
    end(AgentFailed{why});
    begin_drain(sigterm, Tell::round_over, why, now);
}

void Supervisor::report_failure(Failure failure) {
    check_ = Check::due;
    // A client that reconnects after the round's end repeats only the round's report, so that names it once more.
    if (round_->ended) round_->failed_late.push_back(failure);
    if (!unreachable_) act(ReportFailed{{std::move(failure)}});
}

/// At or after our signal an end is our doing, but for a death by a signal that we have not sent: the culprit of the
/// round's end may die a moment after the news of its victims has made us stop everybody.
bool Supervisor::stopped_by_us(const WorkerEnded& ended, const WorkerNotes& notes) const {
    const auto& drain = round_->drain;
    if (!drain || ended.at < drain->signalled || std::holds_alternative<NotStarted>(ended.end)) return false;
    if (saved_and_left(ended.end)) return false;  // our signal was its reason, but it says more than that it obeyed
    // Nor does a signal halt a GPU: this worker hung in its driver, and the others' failures came first.
    if (notes.cause.kind == CauseKind::gpu_fault) return false;
    const auto* by_signal = std::get_if<Signaled>(&ended.end);
    // Nor does a signal make a worker lack a module, a disk's space or agreement with the others.
    if (!by_signal) return notes.cause.kind == CauseKind::unknown;
    // Ranks that differ have ended their communicator before: our signal only came before the end of the process.
    if (by_signal->signal == drain->signal) return notes.cause.kind != CauseKind::collective_mismatch;
    return by_signal->signal == sigkill && drain->killed_at;
}

Failure Supervisor::make_failure(const WorkerEnded& ended, const WorkerNotes& notes) const {
    Failure failure;
    const auto rank = static_cast<std::int32_t>(round_->assignment.rank_base + ended.local_rank);
    failure.kind = failure_kind(ended.end, notes.message, ended.stderr_tail, notes.cause.kind,
                                {.rank = rank, .pid = ended.pid, .host = config_.host});
    failure.host = config_.host;
    failure.role = config_.join.role;
    failure.group_rank = static_cast<std::int32_t>(round_->assignment.group_rank);
    failure.rank = rank;
    failure.local_rank = static_cast<std::int32_t>(ended.local_rank);
    failure.pid = ended.pid;
    failure.end = ended.end;
    failure.message = notes.message;
    failure.stderr_tail = ended.stderr_tail;
    failure.error_file = notes.error_file;
    failure.log_directory = notes.log_directory;
    failure.at_ns = notes.at_ns;
    failure.wall_time_s = notes.wall_time_s;
    failure.cause = notes.cause;
    failure.early = (!notes.stepped && ended.at < round_->workers[ended.local_rank].started_at + start_up_max &&
                     repeats_itself(ended.end, notes.message, ended.stderr_tail)) ||
                    is_full_of_checkpoints(ended.end, notes.message, ended.stderr_tail);
    return failure;
}

/// Of the node as a whole, and not of one of its workers.
Failure Supervisor::node_failure(FailureKind kind, const std::string& why, const WorkerNotes& notes) const {
    Failure failure;
    failure.kind = kind;
    failure.host = config_.host;
    failure.group_rank = static_cast<std::int32_t>(round_->assignment.group_rank);
    failure.end = Signaled{.signal = sigkill};  // how the workers end
    failure.message = why;
    failure.at_ns = notes.at_ns;
    failure.wall_time_s = notes.wall_time_s;
    return failure;
}

/// With it died whatever worker was still running: one failure of this node. What had ended before is not touched by
/// it, and with a new guardian the node takes part in the next round.
void Supervisor::on_guardian_lost(const GuardianLost& lost, const WorkerNotes& notes, Instant now) {
    const auto why = cat("the guardian process of this node's workers died: ", lost.why);
    say(why);
    const bool in_round = round_ && !drained();
    const bool stopping = in_round && round_->drain && lost.at >= round_->drain->signalled;
    if (in_round && (!lost.replaced || (round_->orphaned && !stopping))) {
        // A node that cannot go on is lost to the others, which costs no restart.
        report_failure(node_failure(lost.replaced ? FailureKind::killed : FailureKind::node_lost, why, notes));
    }
    if (!lost.replaced) {
        stuck_ = in_round;  // nobody is left who could say that the tree is empty
        end(AgentFailed{why});
    } else if (in_round) {
        for (auto& worker : round_->workers) worker.group_left = false;
        if (round_->orphaned) begin_drain(sigterm, Tell::round_over, why, now);
    }
}

void Supervisor::on_tree_stuck(const std::string& what) {
    const auto why =
        cat(what, " did not end after SIGKILL, probably because of a dead disk or a hung driver; check this host");
    say(why);
    if (ending_) tell(why);  // the ending that is reported is another one, a stop's
    stuck_ = true;
    end(AgentFailed{why});
}

void Supervisor::fence(const std::string& line, Instant now) {
    kill_kept(line, now);
    if (!round_ || drained()) return;
    // One line is enough for one end: where the daemon's word came first, that was told.
    if (!round_->fenced && !round_->ended) {
        tell(line);
        last_end_ = cat(ranks_of_node(round_->assignment.rank_base, config_.join.slots), ": ", line);
    }
    round_->fenced = true;
    check_ = Check::due;
    if (!round_->drain)
        round_->drain = DrainState{.signal = sigkill, .signalled = now, .kill_at = now, .hurried = true};
    release_held(now);
    kill_now(now);
}

void Supervisor::begin_drain(int signal, Tell tell, const std::string& why, Instant now) {
    if (!round_ || round_->drain) return;
    const auto& held = round_->held;
    const bool same =
        tell == Tell::notice && !held.empty() && outer_signal(std::get<WorkerEnded>(held[0].event)) == signal;
    const Instant since = same ? std::get<WorkerEnded>(held[0].event).at : now;
    round_->drain = DrainState{.signal = signal, .signalled = since, .kill_at = now + config_.grace};
    release_held(now);
    if (tell == Tell::round_over && another_round_follows()) hold_workers(why, now);
    if (std::all_of(round_->workers.begin(), round_->workers.end(), [](const Worker& worker) {
            return worker.end_held || worker.fate != WorkerState::running || worker.keep == Keep::asked;
        }))
        return;
    if (tell == Tell::round_over)
        act(SendRoundOver{why});
    else
        act(NotifyWorkers{why});
    act(SignalWorkers{signal, awaited_timeouts()});
}

AwaitedTimeouts Supervisor::awaited_timeouts() const {
    return {.idle = config_.grace / awaited_idle_part, .busy = config_.grace / awaited_busy_part};
}

void Supervisor::kill_now(Instant now) {
    if (!round_ || !round_->drain || round_->drain->kill_at <= now) return;
    round_->drain->kill_at = now;
    round_->drain->hurried = true;
}

/// The first cause stays.
void Supervisor::end(Ending ending) {
    if (!ending_) ending_ = std::move(ending);
}

}  // namespace muster::agent
