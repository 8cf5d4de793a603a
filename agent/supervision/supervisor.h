// The state machine of one agent, pure: idle -> joining -> starting -> running -> draining -> (joining | done).
// STATES.md beside this folder has the table; every transition ends in settle().
//
// It decides about this node's workers only. Sockets, leases, resending and fencing belong to ClientCore
// (rendezvous/client), budgets and ranks to the daemon (rendezvous/rounds).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/supervision/process_host.h"
#include "rendezvous/base/time.h"
#include "rendezvous/events/event.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

struct SupervisorConfig {
    native::Join join;  ///< Template of each join. last_round, ports and sources are filled in for each.
    std::string host;
    Duration grace = 30s;  ///< --shutdown-timeout: from the stop signal to SIGKILL, on every path but fencing.
    /// From SIGKILL to doing without a guardian that does not answer (one that works says TreeStuck before), and from
    /// then to giving up on processes that do not go.
    Duration kill_wait = 10s;
    /// For the daemon's word on a preemption signal, which reaches all nodes; then this node's workers are told alone.
    Duration notice_wait = 1s;
    /// A scheduler signals all nodes: one that comes so soon after a notice is the same one. (The daemon's is 2 s.)
    Duration notices_are_one_within = 3s;
    std::vector<int> stop_signals;  ///< Signals that StopRequested may have.
    /// A scheduler signals every process of a job, workers and agent, one after another: how long a worker's end by a
    /// stop signal waits for the agent's own.
    Duration signals_are_one_within = 1s;
    /// A stop signal that the scheduler sends repeatedly. The second one does not escalate. 0: none.
    int repeated_signal = 0;
    /// --on-worker-failure=keep: how often each worker of a round may be started again while the others run. 0: a
    /// worker that fails ends the round.
    std::uint32_t keep_max = 0;
    /// From Hold to SIGKILL for a worker that can be kept (WorkerKeeps) and is not held yet.
    Duration hold_wait = 5s;
    /// Before its first round, and after one in which it failed, the node joins only when HealthChecked has come.
    bool checks_health = false;
    /// What a sick node does. Where it hosts the rendezvous of others they need it; where it is the whole job it
    /// leaves.
    enum class SickNode { parks, leaves, joins } sick_node = SickNode::parks;
    Duration health_interval = 60s;  ///< From one check of a sick node to the next.
    /// True if worker rank 0 itself serves the round's store. Its failure then ends the round in any case.
    bool rank_0_has_store = false;
};

/// What the driver found out about a worker at the moment of its end, where it failed.
struct WorkerNotes {
    std::string message;        ///< Message of the error file.
    std::string error_file;     ///< Path of the error file. Empty: the worker wrote none.
    std::string log_directory;  ///< Empty: none.
    std::int64_t at_ns = 0;     ///< Time of the end on this host's clock (rendezvous::clock_ns).
    std::int64_t wall_time_s = 0;
    FailureCause cause;    ///< For a TreeStuck: the facts about the processes.
    bool stepped = false;  ///< True if it had reported a step.
};

/// What a node offers to a round: see native::Join.
struct RoundPorts {
    std::uint16_t store = 0;  ///< 0: none. The static back end's store is the daemon's.
    std::uint16_t peer = 0;   ///< 0: peers cannot query this agent.
    std::vector<std::string> sources{};
};

/// What this node did of a job that is over.
enum class NodePart {
    ran,    ///< The node ran its program in at least one round.
    spare,  ///< The node was a spare and has not run its program.
    late,   ///< The node joined after the end and has not run its program.
};

/// Why this agent ended; launcher/report/exit_code turns it into a number.
struct JobSucceeded {
    NodePart part = NodePart::ran;
    std::string goodput{};    ///< As in JobEnded.
    std::string unhealthy{};  ///< What the health check of this node found, if it was parked at the end.
};
/// The job is over and failed; `report` is the same on every node.
struct JobFailed {
    native::JobEnded report;
    NodePart part = NodePart::ran;
    std::string unhealthy{};  ///< As in JobSucceeded.
};
/// This agent was told to stop by a signal.
struct Cancelled {
    int signal = 0;
    std::string killed{};  ///< Workers that had not ended after the grace. Empty: none.
};
struct NoRendezvous {
    std::string why;         ///< Exit code 75: join timeout, or the daemon is lost.
    std::string last_end{};  ///< How this node's last round ended. Empty: it had none, or that round was still running.
};
struct JoinRefused {
    native::Refused refusal;  ///< Exit code 78.
};
/// The guardian or this agent itself broke.
struct AgentFailed {
    std::string why;
};
/// What the user asked for cannot be had on this host: the log directory, the store's port.
struct SetUpFailed {
    std::string why;  ///< Exit code 78.
};
/// The daemon asked this node to leave, and it left with its workers stopped in order. The job goes on elsewhere.
struct Drained {
    std::string why;  ///< Exit code 76.
};
using Ending =
    std::variant<JobSucceeded, JobFailed, Cancelled, NoRendezvous, JoinRefused, AgentFailed, SetUpFailed, Drained>;

// ---- events ----
struct Begin {};
/// In the place of Begin: this host lacks what the workers need. In a round: StartWorkers had only kept workers, and
/// the round could not be prepared for them.
struct SetUpRefused {
    std::string why;
};
struct DaemonMessage {
    native::Message message;  ///< Assigned, Parked, RoundEnded, Drain, JobEnded or Refused.
};
struct ClientFenced {
    std::string why;
};
struct ClientLost {
    std::string why;
};
struct HostEvent {
    ProcessEvent event;
    WorkerNotes notes;  ///< Set for a WorkerEnded without success. A GuardianLost has the times only.
};
/// The round's own store is bound (answer to OpenStore); an error ends the agent.
struct StoreOpened {
    Result<RoundPorts> ports;
};
/// A handled signal reached the launcher. The second one escalates: SIGKILL at once.
struct StopRequested {
    int signal = 0;
};
/// What the site's own checks say of this node: the answer to CheckHealth.
struct HealthChecked {
    enum class Health { healthy, sick, unknown };
    Health health = Health::healthy;
    std::string why{};  ///< For the two others. Where it is healthy: what some checks did not say.
};
/// The preemption signal reached the launcher: all workers of the job are to hear it.
struct PreemptionAnnounced {
    int signal = 0;
};
/// What a worker said on its channel about being kept (STATES.md, Kept workers).
enum class KeepWord {
    can,     ///< It can leave its round in place.
    cannot,  ///< It cannot, or its channel is closed.
    held,    ///< It has left its round.
};
struct WorkerKeeps {
    std::uint32_t local_rank = 0;
    KeepWord word = KeepWord::can;
};
struct Elapsed {};
using SupervisorEvent =
    std::variant<Begin, SetUpRefused, DaemonMessage, ClientFenced, ClientLost, HostEvent, StoreOpened, StopRequested,
                 HealthChecked, PreemptionAnnounced, WorkerKeeps, Elapsed>;

// ---- actions, carried out in order ----
/// Run the site's own checks of this node; answer HealthChecked.
struct CheckHealth {};
/// Bind a fresh, empty store for the round that is about to be joined; answer StoreOpened.
struct OpenStore {};
/// The round is over: close its store and every connection to it.
struct CloseStore {};
struct SendJoin {
    native::Join join;
};
/// Start this round's workers; environment and argv are made by worker_environment.h from the assignment. Those of
/// `kept` are held, and get Resumed.
struct StartWorkers {
    native::Assigned assignment;
    std::vector<std::uint32_t> kept{};
};
/// From now on signals and KillTree leave the workers of these local ranks alone. It replaces those named before.
struct KeepWorkers {
    std::vector<std::uint32_t> local_ranks;
};
/// In the place of SendRoundOver, to those that KeepWorkers names.
struct SendHold {
    std::string why;
    Duration limit{};
};
/// Start one worker of this round again. Nothing of the process group of its predecessor is left.
struct StartAgain {
    std::uint32_t local_rank = 0;
    std::uint32_t count = 0;  ///< 1 for the first time.
};
/// Say on the channel of each worker that is not kept (also of one that was) that its round is over, before the signal:
/// the runtime leaves at once and does not try to save together with peers that may be dead. A SIGTERM without it is a
/// notice.
struct SendRoundOver {
    std::string why;
};
/// Say on each worker's channel that it is to save and leave, before the signal that says the same.
struct NotifyWorkers {
    std::string why;
};
/// After `awaited` also to children that a worker waits for and that have not got the signal.
struct SignalWorkers {
    int signal = 0;
    AwaitedTimeouts awaited;
};
/// To the process group of a worker, or to what one that has ended left there: a wrapper's program, a data loader.
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
using SupervisorAction =
    std::variant<CheckHealth, OpenStore, CloseStore, SendJoin, StartWorkers, StartAgain, KeepWorkers, SendHold,
                 SendRoundOver, NotifyWorkers, SignalWorkers, SignalGroup, PreemptWorkers, SendCommand, KillTree,
                 KillGuardian, ReportFailed, ReportSucceeded, ReportRound, SendLeave, AcknowledgeEnd, Finish>;

struct SupervisorStep {
    std::vector<SupervisorAction> actions;
    std::vector<Event> why;            ///< What happened: for the log, and for the events of this node.
    std::vector<std::string> notices;  ///< Lines for the user of the launcher, at any log level.
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
    /// True while workers of a round that is over are held here for the next one.
    [[nodiscard]] bool holds_workers() const { return kept_.has_value(); }

  private:
    static constexpr int sigterm = 15;  // The same on every Linux. Cores know no <csignal>.
    static constexpr int sigkill = 9;
    /// replaced: it failed, and is started again when its process group is empty.
    enum class WorkerState { running, succeeded, saved, failed, stopped, replaced };
    /// Whether a worker that runs stays for the next round.
    enum class Keep { no, can, asked, held };
    struct Worker {
        Keep keep = Keep::no;
        bool hold_missed = false;  ///< True after SIGKILL because it was not held in time.
        bool answered = false;     ///< True after WorkerStarted or WorkerEnded.
        WorkerState fate = WorkerState::running;
        bool end_held = false;          ///< True if its end is held and not judged yet (RoundState::held).
        bool group_left = false;        ///< True if it has ended and other processes of its group have not.
        bool group_signalled = false;   ///< True after its group got the stop signal. Sent once.
        std::uint32_t again_count = 0;  ///< How often it was started again in this round.
        Instant started_at;             ///< Time of the order to start it.
        /// While `replaced`: its failure, reported after all if the group is not empty by `replace_until`.
        std::optional<Failure> failure;
        Instant replace_until = no_deadline;
    };
    /// The round's end on this node: one signal for each process group, one grace for all.
    struct DrainState {
        int signal = 0;  ///< Signal that was sent at `signalled`.
        Instant signalled;
        Instant kill_at;                     ///< Deadline. It may be brought forward, never pushed back.
        bool hurried = false;                ///< True if the deadline was brought forward.
        std::optional<Instant> killed_at{};  ///< Time of KillTree.
        std::optional<Instant> forced_at{};  ///< Time of KillGuardian.
        Instant hold_until = no_deadline;    ///< For workers that were asked to be held.
    };
    /// Everything that is forgotten when the round is drained.
    struct RoundState {
        native::Assigned assignment;
        std::vector<Worker> workers;  ///< Indexed by local rank.
        bool tree_empty = false;
        bool success_reported = false;
        bool report_sent = false;
        bool fenced = false;
        bool orphaned = false;  ///< True if a worker died with the guardian.
        /// Text of the last preemption signal, while the daemon's answer or its echo is pending.
        std::string own_notice;
        Instant noticed_at = Instant::min();  ///< Time of the workers' last notice.
        /// Time at which the workers get the notice without an answer of the daemon.
        Instant notice_due = no_deadline;
        bool echo_owed = false;  ///< True if they got it so. The daemon's later NoticeGiven is then ignored.
        /// A notice that waits until every worker has started: until then its signal handlers cannot be known.
        std::optional<std::string> notice_owed{};
        /// A worker's end by a stop signal that this agent has not received, and all later ends.
        std::vector<HostEvent> held;
        Instant held_until = no_deadline;
        std::optional<DrainState> drain;
        std::optional<native::RoundEnded> ended;  ///< The daemon's message.
        std::vector<Failure> failed_late;         ///< Failures reported after the daemon had ended the round.
    };

    /// ending: it was released or is being killed, and lives still.
    enum class Stay { gone, held, ending };
    /// Workers of a drained round that wait for the next one.
    struct KeptWorkers {
        std::vector<Stay> stays;                    ///< Indexed by local rank.
        std::optional<std::string> released_why{};  ///< Set once there is to be no next round for them.
        Instant kill_at = no_deadline;              ///< End of the grace of those that were released.
        std::optional<Instant> killed_at{};         ///< Time of the KillTree that is not answered yet.
        /// What the daemon said about the next round while processes were ending.
        std::vector<native::Message> later{};
        [[nodiscard]] bool is_ending() const { return killed_at || kill_at != no_deadline; }
    };

    // One for each event; they note facts, and settle() draws the conclusions.
    void on(const Begin& event, Instant now);
    void on(const SetUpRefused& event, Instant now);
    void on(const DaemonMessage& event, Instant now);
    void on(const ClientFenced& event, Instant now);
    void on(const ClientLost& event, Instant now);
    void on(const HostEvent& event, Instant now);
    void on(const StoreOpened& event, Instant now);
    void on(const StopRequested& event, Instant now);
    void on(const HealthChecked& event, Instant now);
    void on(const PreemptionAnnounced& event, Instant now);
    void on(const WorkerKeeps& event, Instant now);
    void on(const Elapsed& event, Instant now);
    void on_daemon(const native::Message& message, Instant now);
    bool on_kept_event(const HostEvent& event, Instant now);
    void on_assigned(const native::Assigned& assignment, Instant now);
    void on_round_ended(const native::RoundEnded& ended, Instant now);
    void on_job_ended(const native::JobEnded& ended, Instant now);
    void on_host_event(const HostEvent& event, Instant now);
    bool hold(const HostEvent& event, Instant now);
    void release_held(Instant now);
    void on_worker_ended(const WorkerEnded& ended, const WorkerNotes& notes, Instant now);
    void on_guardian_lost(const GuardianLost& lost, const WorkerNotes& notes, Instant now);
    void on_shortage(const std::string& why, const WorkerNotes& notes, Instant now);
    void report_failure(Failure failure);
    void fail_round(Failure failure, WorkerState fate, Instant now);
    [[nodiscard]] bool keeps_round(const Worker& worker, const WorkerEnded& ended, const Failure& failure) const;
    void keep_round(Worker& worker, Failure failure, Instant now);
    void settle_replaced(Instant now);
    void on_tree_stuck(const std::string& what);

    void settle(Instant now);
    void settle_workers(Instant now);
    void settle_drain(Instant now);
    void settle_notice(Instant now);
    void give_notice(std::string why, std::string_view remark, Instant now);
    void on_notice(const native::NoticeGiven& notice, Instant now);
    void signal_groups();
    [[nodiscard]] bool another_round_follows() const;
    void hold_workers(const std::string& why, Instant now);
    void release_workers(const std::string& why, Instant now);
    void kill_again(Instant now);
    void release_one(std::uint32_t local_rank, Instant now);
    void release_kept(const std::string& why);
    void settle_released(Instant now);
    void kill_kept(const std::string& why, Instant now);
    void kill_kept_tree(Instant now);
    void on_kept_tree_empty(Instant now);
    [[nodiscard]] bool any_stays(Stay stay) const;
    void settle_held(Instant now);
    void settle_kept(Instant now);
    [[nodiscard]] std::vector<std::uint32_t> take_kept();
    [[nodiscard]] bool is_done(const Worker& worker) const;
    void keep_only(Keep least);
    [[nodiscard]] AwaitedTimeouts awaited_timeouts() const;
    void report_killed();
    void settle_round();
    void settle_join();
    void settle_health(Instant now);
    void forget_health();
    void send_join();
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
    void say(std::string why) { say(EventKind::node_progress, std::move(why), {}, EventPlace::log_and_stream); }
    void say(EventKind kind, std::string text, EventFacts facts, EventPlace place);
    void note_assigned();
    void note_start(const WorkerStarted& started);
    void note_end(const WorkerEnded& ended, WorkerState fate, const FailureCause& cause);
    [[nodiscard]] bool drained() const;
    [[nodiscard]] bool all_ended() const;
    [[nodiscard]] bool may_be_noticed() const;
    [[nodiscard]] bool all_gone() const;
    [[nodiscard]] int outer_signal(const WorkerEnded& ended) const;
    [[nodiscard]] bool stopped_by_us(const WorkerEnded& ended, const WorkerNotes& notes) const;
    [[nodiscard]] Failure make_failure(const WorkerEnded& ended, const WorkerNotes& notes) const;
    [[nodiscard]] Failure node_failure(FailureKind kind, const std::string& why, const WorkerNotes& notes) const;

    SupervisorConfig config_;
    SupervisorStep step_;  // of the step under way
    Phase phase_ = Phase::idle;
    bool begun_ = false;
    std::optional<std::string> early_notice_;  // came before Begin; owed to the first workers
    bool store_opening_ = false;
    bool store_open_ = false;
    RoundPorts ports_;
    bool joined_ = false;  // SendJoin was said and not yet answered by a round
    bool parked_ = false;  // the daemon has answered it: a spare
    enum class Check { due, running, done };
    Check check_ = Check::due;  // the site's own, before a join
    std::string unhealthy_;     // what it found. Empty: nothing
    Instant check_again_at_ = no_deadline;
    bool known_ = false;        // the daemon has heard of this agent
    bool job_over_ = false;     // JobEnded came
    bool unreachable_ = false;  // nobody listens any more: no last words
    bool stuck_ = false;        // the tree cannot be emptied
    int stop_count_ = 0;
    Round last_round_ = no_round;
    std::vector<std::string> last_notes_;  // what the last assignment told; each is told once
    std::string last_end_;                 // how it ended here, once it has
    std::optional<RoundState> round_;
    std::optional<KeptWorkers> kept_;
    std::optional<Ending> ending_;
};

}  // namespace muster::agent
