// The supervisor's actions, one function each.
#include <chrono>

#include "agent/driver/agent_driver.h"
#include "agent/process/signal_handlers.h"
#include "rendezvous/base/journal.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"
#include "rendezvous/wire/native/report.h"

namespace muster::agent {

void Agent::Driver::carry_out(const CheckHealth&) {
    if (const auto& fault = config_.health.known_fault; !fault.empty())
        return happen(HealthChecked{HealthChecked::Health::sick, fault});
    host_.reap_left_behind();  // by the check before
    const auto last = commands_.last_round();
    health_.run(last == no_round ? std::optional<Round>() : last, guarded([this](const HealthVerdict& verdict) {
                    using Health = HealthChecked::Health;
                    const auto health = verdict.state == HealthVerdict::State::healthy ? Health::healthy
                                        : verdict.state == HealthVerdict::State::sick  ? Health::sick
                                                                                       : Health::unknown;
                    happen(HealthChecked{health, verdict.why});
                }));
}

void Agent::Driver::carry_out(const SendJoin& action) {
    if (supervisor_.holds_workers()) {
        // What they hold of a GPU is neither foreign nor about to come back.
        log(LogLevel::debug, "workers are held: joining without a look at the GPUs");
        gpus_.drop();
        return link_.submit(action.join);
    }
    gpus_.when_free(guarded([this, join = action.join] { link_.submit(join); }));
}

void Agent::Driver::carry_out(const StartWorkers& action) {
    health_.drop();
    gpus_.drop();  // a second Join of a sick node may still wait for them
    // Before a held worker hears of the round.
    for (const auto local_rank : action.kept)
        host_.change_owner(local_rank, commands_.log_owner(action.assignment, local_rank));
    auto made = store_trouble_.empty() ? commands_.make(action.assignment, action.kept)
                                       : Result<std::vector<WorkerCommand>>(Error{Errc::io, store_trouble_});
    if (made.has_value()) {
        set_journal_field("MUSTER_ROUND", cat(action.assignment.round));
        set_journal_field("MUSTER_NODE_RANK", cat(action.assignment.group_rank));
        evidence_.begin_round();
        hangs_.begin_round(action.assignment.rank_base);
        faults_.begin_round(action.assignment.round, action.assignment.rank_base, action.kept);
        for (const auto local_rank : action.kept) {
            const auto pid = worker_pids_.find(local_rank);
            if (pid != worker_pids_.end()) hangs_.worker_started(local_rank, pid->second);
        }
        // The guardian may be hungry from a time when it could not be fed.
        if (link_.may_feed()) host_.feed();
        host_.start(std::move(made.value()));
        if (config_.gpu_use) gpus_.watch_busy();
        return;
    }
    // Held workers are not resumed then, and end with the round.
    if (action.kept.size() == config_.supervisor.join.slots)
        return happen(SetUpRefused{cat("this node cannot start its workers: ", made.error().context)});
    for (std::uint32_t local_rank = 0; local_rank < config_.supervisor.join.slots; ++local_rank)
        if (!worker_pids_.contains(local_rank)) refuse_start(local_rank, made.error().context);
}

void Agent::Driver::carry_out(const StartAgain& action) {
    auto made = commands_.make_again(action.local_rank, action.count);
    if (made.has_error()) return refuse_start(action.local_rank, made.error().context);
    std::vector<WorkerCommand> one;
    one.push_back(std::move(made.value()));
    host_.start(std::move(one));
}

/// Nothing was started.
void Agent::Driver::refuse_start(std::uint32_t local_rank, const std::string& why) {
    WorkerNotes notes = notes_at(now());
    notes.message = why;
    WorkerEnded ended{.local_rank = local_rank, .end = NotStarted{0, "prepare the worker"}, .at = now()};
    happen(HostEvent{std::move(ended), std::move(notes)});
}

void Agent::Driver::carry_out(const KeepWorkers& action) {
    host_.keep(action.local_ranks);
    commands_.keep(action.local_ranks);
}

void Agent::Driver::carry_out(const SendHold& action) {
    hangs_.round_failed();
    hangs_.rest();
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(action.limit);
    commands_.send_to_kept(local::Hold{static_cast<std::uint64_t>(limit.count()), action.why});
}

void Agent::Driver::carry_out(const SendRoundOver& action) {
    hangs_.round_failed();
    commands_.send_to_all(local::RoundEnded{action.why});
}

void Agent::Driver::carry_out(const SignalWorkers& action) {
    hangs_.rest();
    host_.signal_leaders(action.signal);
    host_.follow_up(action.signal, action.awaited);
}

void Agent::Driver::carry_out(const PreemptWorkers& action) {
    commands_.send_to_all(local::Notice{.why = action.why});
    const int signal = config_.workers.preemption_signal;
    if (signal == 0) return;
    std::string deaf;
    for (const auto& [local_rank, pid] : worker_pids_)
        if (!handles_signal(pid, signal)) deaf += cat(deaf.empty() ? "" : ", ", local_rank);
    // To those without a handler it would be the end; and no rank may save without the others.
    if (deaf.empty()) return host_.signal_leaders(signal);
    if (agent_.on_progress)
        agent_.on_progress(cat(signal_name(signal), " was not forwarded: local rank ", deaf, " has no handler for it"));
}

void Agent::Driver::carry_out(const KillTree&) {
    hangs_.rest();
    host_.kill_tree();
}

void Agent::Driver::carry_out(const ReportFailed& action) {
    native::WorkersFailed failed{.failures = action.failures};
    native::fit_report(failed.failures);
    link_.submit(std::move(failed));
}

/// What has happened since the last look, also of workers that were killed.
void Agent::Driver::send_last_steps() {
    native::WorkersSeen seen{.round = commands_.last_round(), .sections = hangs_.sections(), .final = true};
    for (std::uint32_t local_rank = 0; local_rank < config_.supervisor.join.slots; ++local_rank) {
        auto steps = commands_.steps_of(local_rank);
        if (steps.last_step < 0 || seen.workers.size() == native::activities_max) continue;
        const auto rank = static_cast<std::int32_t>(commands_.rank_of(local_rank));
        seen.workers.push_back({.at = {.rank = rank}, .step = steps.last_step, .tally = steps.tally});
        if (rank == 0) seen.step_times = std::move(steps.times);
    }
    if (!seen.workers.empty()) link_.submit(std::move(seen));
}

void Agent::Driver::carry_out(const ReportSucceeded&) {
    gpus_.drop();
    send_last_steps();
    link_.submit(native::WorkersSucceeded{});
}

void Agent::Driver::carry_out(const ReportRound& action) {
    gpus_.drop();
    auto report = action.report;
    native::fit_report(report.failures);
    commands_.keep_flight_records();
    send_last_steps();
    commands_.forget_round();
    report.checkpoint_step = commands_.checkpoint_step();
    report.activities = hangs_.activities();
    persister_->start(commands_.snapshots(), commands_.last_round(), AgentPersister::When::between_rounds);
    link_.submit(std::move(report));
}

void Agent::Driver::carry_out(const SendLeave& action) {
    gpus_.drop();
    health_.drop();
    link_.submit(native::Leave{action.why});
}

void Agent::Driver::carry_out(const Finish& action) {
    host_.end_standbys();
    settle_flight_records(std::holds_alternative<JobSucceeded>(action.ending));
    reach_.cancel();
    commands_.forget_round();
    hangs_.rest();
    gpus_.drop();
    health_.drop();
    looking_.cancel();
    measuring_.cancel();
    if (metrics_file_) metrics_file_->write({});  // a directory that hangs must not hold up this loop
    preflight_.drop();
    feeding_.cancel();
    deadline_.cancel();
    command_socket_.reset();
    logs_.remove_if_empty();
    using When = AgentPersister::When;
    const bool succeeded = std::holds_alternative<JobSucceeded>(action.ending);
    // What this node's own disk has is not lost, whatever becomes of the shared directory.
    persister_->start(commands_.snapshots(), commands_.last_round(),
                      commands_.newest_is_on_local_disk() ? When::between_rounds
                      : succeeded                         ? When::after_success
                                                          : When::at_the_end);
    // The daemon and the other agents need not wait for our disk, so the link closes meanwhile.
    link_.close(1s, guarded([this, ending = action.ending] {
                    finishing_ = true;
                    // It comes from the loop, so that the owner may destroy the agent in on_end.
                    persister_->when_done(guarded([this, ending](const std::string& unsaved) {
                        signals_.cancel();
                        if (!unsaved.empty() && agent_.on_unsaved) agent_.on_unsaved(unsaved);
                        if (agent_.on_end) agent_.on_end(ending);
                    }));
                }));
}

void Agent::Driver::settle_flight_records(bool job_succeeded) {
    auto& files = commands_.flight_files();
    if (job_succeeded) return files.remove_all();
    commands_.keep_flight_records();
    if (!files.directory().empty() && agent_.on_progress)
        agent_.on_progress(cat("for the last operations of each rank, run: muster flight '", files.directory(), "'"));
}

}  // namespace muster::agent
