// The life of one agent, pure: idle -> joining -> starting -> running -> draining -> (joining | done).
// STATES.md beside this folder has the table; every transition ends in settle().
//
// It decides about workers alone. Sockets, leases, resending and fencing are ClientCore's (rendezvous/client), budgets
// and ranks the daemon's (rendezvous/rounds).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/supervision/process_host.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

struct SupervisorConfig {
    native::Join join;  ///< what each join says; last_round and store_port are filled in anew
    std::string host;
    Duration grace = 30s;  ///< --shutdown-timeout: from the stop signal to SIGKILL, on every path but fencing
    /// From SIGKILL to doing without a guardian that does not answer (one that works says TreeStuck before), and from
    /// then to giving up on processes that do not go.
    Duration kill_wait = 10s;
    /// For the daemon's word on a preemption signal, which reaches all nodes; then this node's workers are told alone.
    Duration notice_wait = 1s;
    /// A scheduler signals all nodes: one that comes so soon after a notice is the same one. (The daemon's is 2 s.)
    Duration notices_are_one_within = 3s;
    std::vector<int> stop_signals;  ///< those that StopRequested may bring
    /// A scheduler signals every process of a job, workers and agent, one after another: how long a worker's end by a
    /// stop signal waits for the agent's own.
    Duration signals_are_one_within = 1s;
    int repeated_signal = 0;  ///< a stop signal that a scheduler sends more than once, so that the second one says
                              ///< nothing new; 0: none
};

/// What the driver found out about a worker at the moment of its end, where it failed.
struct WorkerNotes {
    std::string message;        ///< the error file's message
    std::string error_file;     ///< its path; empty if the worker wrote none
    std::string log_directory;  ///< empty: none
    std::int64_t at_ns = 0;     ///< of the end, on this host's clock (rendezvous::clock_ns)
    std::int64_t wall_time_s = 0;
    FailureCause cause;    ///< of a TreeStuck: what is known of the processes
    bool stepped = false;  ///< it had told of a step
};

/// What a node offers to a round: see native::Join.
struct RoundPorts {
    std::uint16_t store = 0;  ///< 0: none; the static back end's store is the daemon's
    std::uint16_t peer = 0;   ///< 0: peers cannot ask this agent
};

/// What this node did of a job that is over.
enum class NodePart {
    ran,    ///< its program, in one round at least
    spare,  ///< it stood by, and has not run its program
    late,   ///< it came after the end, and has not run its program
};

/// Why this agent ended; launcher/report/exit_code turns it into a number.
struct JobSucceeded {
    NodePart part = NodePart::ran;
};
/// The job is over and failed; `report` is the same on every node.
struct JobFailed {
    native::JobEnded report;
    NodePart part = NodePart::ran;
};
/// This agent was told to stop by a signal.
struct Cancelled {
    int signal = 0;
    std::string killed{};  ///< which workers had not ended after the grace; empty: none
};
struct NoRendezvous {
    std::string why;         ///< 75: join time-out, daemon lost
    std::string last_end{};  ///< how this node's last round had ended; empty: it had none, or that ran until then
};
struct JoinRefused {
    native::Refused refusal;  ///< 78
};
/// The guardian or this agent itself broke.
struct AgentFailed {
    std::string why;
};
/// What the user asked for cannot be had on this host: the log directory, the store's port.
struct SetUpFailed {
    std::string why;  ///< 78
};
/// The daemon asked this node to leave, and it left with its workers stopped in order. The job goes on elsewhere.
struct Drained {
    std::string why;  ///< 76
};
using Ending =
    std::variant<JobSucceeded, JobFailed, Cancelled, NoRendezvous, JoinRefused, AgentFailed, SetUpFailed, Drained>;

// ---- events ----
struct Begin {};
/// In the place of Begin: this host lacks what the workers need.
struct SetUpRefused {
    std::string why;
};
struct DaemonSaid {
    native::Message message;  ///< Assigned, Parked, RoundEnded, Drain, JobEnded, Refused
};
struct ClientFenced {
    std::string why;
};
struct ClientLost {
    std::string why;
};
struct HostSaid {
    ProcessEvent event;
    WorkerNotes notes;  ///< for a WorkerEnded that is no success, and the times of a GuardianLost
};
/// The round's own store is bound (answer to OpenStore); an error ends the agent.
struct StoreOpened {
    Result<RoundPorts> ports;
};
/// A handled signal reached the launcher. The second one escalates: SIGKILL at once.
struct StopRequested {
    int signal = 0;
};
/// The preemption signal reached the launcher: all workers of the job are to hear it.
struct PreemptionAnnounced {
    int signal = 0;
};
struct Elapsed {};
using SupervisorEvent = std::variant<Begin, SetUpRefused, DaemonSaid, ClientFenced, ClientLost, HostSaid, StoreOpened,
                                     StopRequested, PreemptionAnnounced, Elapsed>;

// ---- actions, carried out in order ----
/// Bind a fresh, empty store for the round that is about to be joined; answer StoreOpened.
struct OpenStore {};
/// The round is over: close its store and every connection to it.
struct CloseStore {};
struct SendJoin {
    native::Join join;
};
/// Start this round's workers; environment and argv are made by worker_environment.h from the assignment.
struct StartWorkers {
    native::Assigned assignment;
};
/// Say on each worker's channel that its round is over, before the signal: the runtime leaves at once and does not try
/// to save together with peers that may be dead. A SIGTERM without it is a notice.
struct TellWorkers {
    std::string why;
};
/// Say on each worker's channel that it is to save and leave, before the signal that says the same.
struct NotifyWorkers {
    std::string why;
};
/// After `awaited` also to children that a worker waits for and that have not got the signal.
struct SignalWorkers {
    int signal = 0;
    AwaitedPatience awaited;
};
/// To what a worker that has ended left in its process group: a wrapper's program, a data loader.
struct SignalGroup {
    std::uint32_t local_rank = 0;
    int signal = 0;
};
/// A notice, no stop: the message on the channel, and the preemption signal to workers that handle it.
struct PreemptWorkers {
    std::string why;
};
struct SendCommand {
    native::Command command;
};
struct KillTree {};
/// The guardian has not carried out KillTree, and does not say why: it is stopped. SIGKILL for it, and for all that it
/// guarded; TreeEmpty and GuardianLost follow.
struct KillGuardian {};
struct ReportFailed {
    std::vector<Failure> failures;
};
struct ReportSucceeded {};
struct ReportRound {
    native::RoundReport report;
};
struct SendLeave {
    std::string why;
};
struct AcknowledgeEnd {};
/// The agent is through; nothing follows.
struct Finish {
    Ending ending;
};
using SupervisorAction = std::variant<OpenStore, CloseStore, SendJoin, StartWorkers, TellWorkers, NotifyWorkers,
                                      SignalWorkers, SignalGroup, PreemptWorkers, SendCommand, KillTree, KillGuardian,
                                      ReportFailed, ReportSucceeded, ReportRound, SendLeave, AcknowledgeEnd, Finish>;

struct SupervisorStep {
    std::vector<SupervisorAction> actions;
    std::vector<std::string> why;      ///< log lines
    std::vector<std::string> notices;  ///< for the person at the launcher, whatever the log level
};

enum class Phase { idle, joining, starting, running, draining, drained, done };
std::string_view name(Phase phase);

class Supervisor {
  public:
    explicit Supervisor(SupervisorConfig config);

    /// After a step that held Finish every further one is empty. A worker's end that cannot be (no such worker, a
    /// second end) is a bug of the process host, and aborts.
    SupervisorStep step(const SupervisorEvent& event, Instant now);

    /// When step(Elapsed) must be called at the latest; no_deadline when nothing waits for time.
    [[nodiscard]] Instant deadline() const;
    [[nodiscard]] Phase phase() const { return phase_; }

  private:
    enum class Fate { running, succeeded, saved, failed, stopped };
    struct Worker {
        bool answered = false;  ///< WorkerStarted or WorkerEnded was seen
        Fate fate = Fate::running;
        bool end_held = false;         ///< it has ended, which is not looked at yet (RoundState::held)
        bool group_left = false;       ///< it has ended, and others of its process group have not
        bool group_signalled = false;  ///< they were sent the stop signal: once
    };
    /// The round's end on this node: one signal for each process group, one grace for all.
    struct DrainState {
        int signal = 0;  ///< the one that was sent at `signalled`
        Instant signalled;
        Instant kill_at;                   ///< may come nearer, never move away
        bool hurried = false;              ///< it came nearer
        std::optional<Instant> killed_at;  ///< KillTree was said
        std::optional<Instant> forced_at;  ///< KillGuardian was said
    };
    /// Everything that is forgotten when the round is drained.
    struct RoundState {
        native::Assigned assignment;
        std::vector<Worker> workers;  ///< by local rank
        Instant assigned_at;
        bool tree_empty = false;
        bool success_reported = false;
        bool report_sent = false;
        bool fenced = false;
        bool orphaned = false;   ///< a worker died with the guardian
        std::string own_notice;  ///< of the last preemption signal; while it is awaited, and when its echo is owed
        Instant noticed_at = Instant::min();  ///< the workers were told last
        Instant notice_due = no_deadline;  ///< the workers are told of it then, if the daemon has not said it by then
        bool echo_owed = false;            ///< they were, and the daemon will say it when it can be reached again
        std::vector<HostSaid> held;  ///< a worker's end by a stop signal that this agent has not got, and all after it
        Instant held_until = no_deadline;
        std::optional<DrainState> drain;
        std::optional<native::RoundEnded> ended;  ///< what the daemon said
        std::vector<Failure> failed_late;         ///< reported after the daemon had ended the round
    };

    // One for each event; they note facts, and settle() draws the conclusions.
    void on(const Begin& event, Instant now);
    void on(const SetUpRefused& event, Instant now);
    void on(const DaemonSaid& event, Instant now);
    void on(const ClientFenced& event, Instant now);
    void on(const ClientLost& event, Instant now);
    void on(const HostSaid& event, Instant now);
    void on(const StoreOpened& event, Instant now);
    void on(const StopRequested& event, Instant now);
    void on(const PreemptionAnnounced& event, Instant now);
    void on(const Elapsed& event, Instant now);
    void on_assigned(const native::Assigned& assignment, Instant now);
    void on_round_ended(const native::RoundEnded& ended, Instant now);
    void on_job_ended(const native::JobEnded& ended, Instant now);
    void on_host_said(const HostSaid& event, Instant now);
    bool hold(const HostSaid& event, Instant now);
    void release_held(Instant now);
    void on_worker_ended(const WorkerEnded& ended, const WorkerNotes& notes, Instant now);
    void on_guardian_lost(const GuardianLost& lost, const WorkerNotes& notes, Instant now);
    void on_shortage(const std::string& why, const WorkerNotes& notes, Instant now);
    void report_failure(Failure failure);
    void on_tree_stuck(const std::string& what);

    void settle(Instant now);
    void settle_workers(Instant now);
    void settle_notice(Instant now);
    void on_notice(const native::NoticeGiven& notice, Instant now);
    void signal_groups();
    void tell_killed();
    void settle_round();
    void settle_join();
    [[nodiscard]] Phase derive_phase() const;

    enum class Tell { round_over, notice };
    void begin_drain(int signal, Tell tell, const std::string& why, Instant now);
    void kill_now(Instant now);
    void fence(const std::string& line, Instant now);
    void report_round();
    void finish();
    void end(Ending ending);
    void act(SupervisorAction action) { step_.actions.push_back(std::move(action)); }
    void tell(std::string line) { step_.notices.push_back(std::move(line)); }
    void say(std::string why) { step_.why.push_back(std::move(why)); }
    [[nodiscard]] bool drained() const;
    [[nodiscard]] bool all_ended() const;
    [[nodiscard]] bool all_gone() const;
    [[nodiscard]] int outer_signal(const WorkerEnded& ended) const;
    [[nodiscard]] bool stopped_by_us(const WorkerEnded& ended, const WorkerNotes& notes) const;
    [[nodiscard]] Failure make_failure(const WorkerEnded& ended, const WorkerNotes& notes) const;
    [[nodiscard]] Failure node_failure(FailureKind kind, const std::string& why, const WorkerNotes& notes) const;

    SupervisorConfig config_;
    SupervisorStep step_;  // of the step under way
    Phase phase_ = Phase::idle;
    bool begun_ = false;
    bool store_opening_ = false;
    bool store_open_ = false;
    RoundPorts ports_;
    bool joined_ = false;    // SendJoin was said and not yet answered by a round
    bool parked_ = false;    // the daemon has answered it: a spare
    bool known_ = false;     // the daemon has heard of this agent
    bool job_over_ = false;  // JobEnded came
    bool deaf_ = false;      // nobody listens any more: no last words
    bool stuck_ = false;     // the tree cannot be emptied
    int stop_count_ = 0;
    Round last_round_ = no_round;
    std::string last_end_;  // how it ended here, once it has
    std::optional<RoundState> round_;
    std::optional<Ending> ending_;
};

}  // namespace muster::agent
