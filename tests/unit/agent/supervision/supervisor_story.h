// A supervisor under test: events in, the actions out as one line of text, in an agent's life of two workers.
#pragma once

#include <csignal>
#include <string>

#include "agent/supervision/supervisor.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent::test {

/// What stops workers that run.
inline const std::string term = "SendRoundOver; Signal(SIGTERM)";

inline std::string show(const Ending& ending) {
    struct Show {
        std::string operator()(const JobSucceeded&) const { return "JobSucceeded"; }
        std::string operator()(const JobFailed& e) const { return cat("JobFailed ", e.report.why); }
        std::string operator()(const Cancelled& e) const { return cat("Cancelled ", signal_name(e.signal)); }
        std::string operator()(const NoRendezvous& e) const { return cat("NoRendezvous ", e.why); }
        std::string operator()(const JoinRefused& e) const { return cat("JoinRefused ", e.refusal.why); }
        std::string operator()(const AgentFailed&) const { return "AgentFailed"; }
        std::string operator()(const SetUpFailed&) const { return "SetUpFailed"; }
        std::string operator()(const Drained& e) const { return cat("Drained ", e.why); }
    };
    return std::visit(Show{}, ending);
}

inline std::string show(const std::vector<Failure>& failures) {
    std::string out;
    for (const auto& failure : failures)
        out += cat(out.empty() ? "" : ", ",
                   failure.rank < 0 ? std::string("node") : cat("rank ", failure.rank, ": ", describe(failure.end)));
    return out;
}

inline std::string show(const SupervisorAction& action) {
    struct Show {
        std::string operator()(const CheckHealth&) const { return "CheckHealth"; }
        std::string operator()(const OpenStore&) const { return "OpenStore"; }
        std::string operator()(const CloseStore&) const { return "CloseStore"; }
        std::string operator()(const SendJoin& a) const {
            return cat("SendJoin(after ", a.join.last_round, ", store ", a.join.store_port,
                       a.join.unhealthy.empty() ? ")" : ", sick)");
        }
        static std::string list(const std::vector<std::uint32_t>& ranks) {
            std::string out;
            for (const auto rank : ranks) out += cat(out.empty() ? "" : " ", rank);
            return out;
        }
        std::string operator()(const StartWorkers& a) const {
            return cat("StartWorkers(", a.assignment.round, a.kept.empty() ? "" : cat(", kept ", list(a.kept)), ")");
        }
        std::string operator()(const KeepWorkers& a) const { return cat("Keep(", list(a.local_ranks), ")"); }
        std::string operator()(const SendHold& a) const { return cat("SendHold(", muster::describe(a.limit), ")"); }
        std::string operator()(const StartAgain& a) const {
            return cat("StartAgain(", a.local_rank, ", ", a.count, ")");
        }
        std::string operator()(const SendRoundOver&) const { return "SendRoundOver"; }
        std::string operator()(const NotifyWorkers&) const { return "NotifyWorkers"; }
        std::string operator()(const SignalWorkers& a) const { return cat("Signal(", signal_name(a.signal), ")"); }
        std::string operator()(const SignalGroup& a) const {
            return cat("SignalGroup(", a.local_rank, ", ", signal_name(a.signal), ")");
        }
        std::string operator()(const PreemptWorkers& a) const { return cat("PreemptWorkers(", a.why, ")"); }
        std::string operator()(const SendCommand& a) const {
            return cat("SendCommand(", a.command.verb == native::CommandVerb::notify_job ? "notify" : "drain", ": ",
                       a.command.why, ")");
        }
        std::string operator()(const KillTree&) const { return "KillTree"; }
        std::string operator()(const KillGuardian&) const { return "KillGuardian"; }
        std::string operator()(const ReportFailed& a) const { return cat("ReportFailed(", show(a.failures), ")"); }
        std::string operator()(const ReportSucceeded&) const { return "ReportSucceeded"; }
        std::string operator()(const ReportRound& a) const {
            return cat("ReportRound(", a.report.round, ", failed [", show(a.report.failures), "], stopped ",
                       a.report.stopped_count, ")");
        }
        std::string operator()(const SendLeave& a) const { return cat("SendLeave(", a.why, ")"); }
        std::string operator()(const AcknowledgeEnd&) const { return "AcknowledgeEnd"; }
        std::string operator()(const Finish& a) const { return cat("Finish(", show(a.ending), ")"); }
    };
    return std::visit(Show{}, action);
}

inline std::string show(const std::vector<SupervisorAction>& actions) {
    std::string out;
    for (const auto& action : actions) out += cat(out.empty() ? "" : "; ", show(action));
    return out;
}

/// Two workers, one restart, a grace of 30 s, 5 s of waiting after SIGKILL; host "a", group rank 1, ranks 2 and 3.
class Story {
  public:
    Story() : Story(config()) {}
    explicit Story(SupervisorConfig config) : supervisor_(std::move(config)) {}

    static SupervisorConfig config() {
        SupervisorConfig config;
        config.join.slots = 2;
        config.join.terms.restarts_max = 1;
        config.host = "a";
        config.grace = 30s;
        config.kill_wait = 5s;
        config.stop_signals = {SIGTERM, SIGINT, SIGHUP};
        config.repeated_signal = SIGHUP;
        return config;
    }

    std::string step(const SupervisorEvent& event) {
        last_ = supervisor_.step(event, now);
        return show(last_.actions);
    }
    const SupervisorStep& last() const { return last_; }
    /// Of a step that held Finish.
    const Ending& ending() const { return std::get<Finish>(last_.actions.back()).ending; }
    Phase phase() const { return supervisor_.phase(); }
    Duration time_left() const {
        return supervisor_.deadline() == no_deadline ? Duration::max() : supervisor_.deadline() - now;
    }

    // The events, in words.
    std::string begin() { return step(Begin{}); }
    std::string store_opened() { return step(StoreOpened{RoundPorts{4000, 4000}}); }
    std::string assigned(Round round, std::uint32_t restart_count = 0) {
        native::Assigned assigned;
        assigned.round = round;
        assigned.restart_count = restart_count;
        assigned.group_rank = 1;
        assigned.group_world_size = 2;
        assigned.rank_base = 2;
        assigned.world_size = 4;
        return step(DaemonMessage{assigned});
    }
    std::string started(std::uint32_t local_rank) { return step(HostEvent{WorkerStarted{local_rank, 100}, {}}); }
    std::string ended(std::uint32_t local_rank, WorkerEnd end) { return ended_at(local_rank, std::move(end), now); }
    std::string ended_at(std::uint32_t local_rank, WorkerEnd end, Instant at) {
        return step(HostEvent{WorkerEnded{.local_rank = local_rank, .pid = 100, .end = std::move(end), .at = at}, {}});
    }
    /// Its leader has ended; others of its process group live.
    std::string ended_but_group(std::uint32_t local_rank, WorkerEnd end) {
        WorkerEnded ended{.local_rank = local_rank, .pid = 100, .end = std::move(end), .at = now};
        ended.group_left = true;
        return step(HostEvent{std::move(ended), {}});
    }
    std::string group_empty(std::uint32_t local_rank) { return step(HostEvent{GroupEmpty{local_rank}, {}}); }
    std::string unfed(std::uint32_t local_rank) {
        WorkerEnded ended{.local_rank = local_rank, .pid = 100, .end = Signaled{SIGKILL}, .at = now};
        ended.unfed = true;
        return step(HostEvent{std::move(ended), {}});
    }
    std::string orphaned(std::uint32_t local_rank) {
        WorkerEnded ended{.local_rank = local_rank, .pid = 100, .end = Signaled{SIGKILL}, .at = now};
        ended.orphaned = true;
        return step(HostEvent{std::move(ended), {}});
    }
    std::string can_keep(std::uint32_t local_rank) { return step(WorkerKeeps{local_rank, KeepWord::can}); }
    std::string cannot_keep(std::uint32_t local_rank) { return step(WorkerKeeps{local_rank, KeepWord::cannot}); }
    std::string held(std::uint32_t local_rank) { return step(WorkerKeeps{local_rank, KeepWord::held}); }
    std::string parked() { return step(DaemonMessage{native::Parked{}}); }
    std::string tree_empty() { return step(HostEvent{TreeEmpty{}, {}}); }
    std::string tree_stuck() { return step(HostEvent{TreeStuck{{77}}, {}}); }
    std::string guardian_lost() { return step(HostEvent{GuardianLost{"killed", now, false}, {}}); }
    std::string guardian_replaced() { return step(HostEvent{GuardianLost{"killed", now, true}, {}}); }
    std::string round_ended(Round round, bool final = false) {
        return step(
            DaemonMessage{native::RoundEnded{round, native::RoundEndReason::worker_failed, final, "rank 0 failed"}});
    }
    std::string job_succeeded() { return step(DaemonMessage{native::JobEnded{}}); }
    std::string job_failed() {
        return step(DaemonMessage{native::JobEnded{native::JobOutcome::failed, {}, 0, "no restart left"}});
    }
    std::string drain() { return step(DaemonMessage{native::Drain{"maintenance"}}); }
    std::string preempted() { return step(PreemptionAnnounced{SIGUSR1}); }
    std::string notice(std::string why) { return step(DaemonMessage{native::NoticeGiven{std::move(why)}}); }
    std::string refused() {
        return step(DaemonMessage{native::Refused{native::RefusalReason::terms_differ, "max 2, not 3"}});
    }
    std::string fenced() { return step(ClientFenced{"silent"}); }
    std::string lost() { return step(ClientLost{"no answer"}); }
    std::string stop(int signal) { return step(StopRequested{signal}); }
    std::string elapse(Duration duration) {
        now += duration;
        return step(Elapsed{});
    }

    // The states of the table.
    static Story idle() { return {}; }
    static Story joining() {
        Story story;
        story.begin();
        story.store_opened();
        return story;
    }
    static Story starting() {
        Story story = joining();
        story.assigned(0);
        return story;
    }
    static Story running() {
        Story story = starting();
        story.started(0);
        story.started(1);
        return story;
    }
    /// The round ended elsewhere; SIGTERM was sent 1 s ago.
    static Story draining() {
        Story story = running();
        story.round_ended(0);
        story.elapse(1s);
        return story;
    }
    /// A worker failed here and everything is gone; the daemon has not spoken yet.
    static Story drained() {
        Story story = running();
        story.ended(0, Exited{7});
        story.ended(1, Signaled{SIGTERM, false});
        story.tree_empty();
        return story;
    }

    Instant now = Instant(1h);

  private:
    Supervisor supervisor_;
    SupervisorStep last_;
};

}  // namespace muster::agent::test
