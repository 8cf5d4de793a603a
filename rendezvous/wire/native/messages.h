// The agents' protocol: every message, as plain structs. PROTOCOL.md has the bytes; codec.h turns one into the other.
//
// An agent opens one connection and writes Hello and Join together. The daemon answers Join once, when the round
// seals (Assigned), when the node must wait (Parked), when the job is over (JobEnded) or when it must not take part
// (Refused). RoundEnded, Drain, Gathering, Peers, JobSeen and JobEnded are pushes. Every message of an agent counts as
// a heartbeat; Ping is sent only when nothing else was.
//
// Join and the reports carry their round and the Hello its incarnation, so a client may always send again after a
// reconnect: what is stale is answered with the current state and never acted upon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/ids.h"
#include "rendezvous/base/section_times.h"
#include "rendezvous/wire/native/failure.h"
#include "rendezvous/wire/native/fault.h"
#include "rendezvous/wire/native/tree_place.h"

namespace muster::native {

inline constexpr std::uint32_t protocol_version = 13;

/// What all agents of a job must agree on. The first join sets it; a later one that differs is refused with both
/// values.
struct JobTerms {
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    std::uint32_t spares = 0;        ///< Nodes beyond the maximum that the first seal waits for, up to the last call.
    std::uint32_t restarts_max = 0;  ///< Restart budget of the job.
    bool fixed_world = false;        ///< The static back end: the world is nodes_max, ranks are the node ranks.
    std::uint32_t last_call_ms = 30'000;
    std::uint32_t lease_ms = 5'000;
    std::uint32_t lost_timeout_ms = 60'000;  ///< --rdzv-lost-timeout: how long each side waits for the other.
    std::uint32_t stalled_restarts_max = 0;  ///< Restarts in a row without a newer checkpoint. 0: no limit.
    std::uint32_t restarts_window_ms = 0;  ///< restarts_max applies to any period of this length. 0: to the whole job.
    std::uint32_t node_failures_max = 0;   ///< A node that is the first cause of this many ...
    std::uint32_t node_failures_of = 0;    ///< ... of this many last rounds is excluded. 0 of 0: never.
    bool restart_early_failures = false;   ///< Restart also after a failure that will repeat (Failure::early).
    bool store_door = false;               ///< Nodes reach the workers' store by TLS only.
    friend bool operator==(const JobTerms&, const JobTerms&) = default;
};

/// A named version that should be equal on all nodes ("muster", "driver", "cuda", "nccl"); a difference is told to all.
struct VersionFact {
    std::string component;
    std::string version;
    friend bool operator==(const VersionFact&, const VersionFact&) = default;
};

// ---- agent -> daemon ----

struct Hello {
    std::uint32_t version = protocol_version;
    std::string job;
    NodeIdentity node;
    std::uint32_t connection = 1;  ///< 1 for the agent's first connection, one more for each later one.
    std::vector<VersionFact> versions;
    std::string challenge;  ///< Input of the daemon's proof. Empty: this agent has no secret.
    friend bool operator==(const Hello&, const Hello&) = default;
};

/// "I have no worker running and want to be in the next round." So Join also says that the previous round is drained.
struct Join {
    JobTerms terms;
    Round last_round = no_round;  ///< The last round assigned to this incarnation. no_round for a new agent.
    std::uint32_t slots = 1;      ///< Workers on this node.
    std::string role = "default";
    std::int32_t node_rank = -1;  ///< --node-rank or the scheduler's order. -1: none.
    /// this node's own daemon is the rendezvous: it gets group rank 0 if nobody asks for it
    bool hosts_endpoint = false;
    std::vector<std::string> addresses;  ///< Addresses at which peers reach this node, best first; names or numeric.
    /// Addresses from which this node's workers may connect: numeric ones of its interfaces.
    std::vector<std::string> sources;
    std::uint16_t store_port = 0;  ///< Port of the listener for the next round's store. 0: none (probed port).
    std::uint16_t peer_port = 0;   ///< Port on which this agent answers PeerAsk. 0: none.
    std::string entry;             ///< The program, for messages ("train.py").
    std::string arguments;         ///< Its arguments, for messages: without secrets and control characters, truncated.
    std::uint64_t arguments_hash = 0;  ///< Hash of the program and all arguments, without secrets. 0: not given.
    /// From the first node: the hosts that its scheduler gave to the job, as Slurm writes them ("gpu[01-08]"). Empty:
    /// unknown.
    std::string expected_hosts;
    std::string unhealthy;        ///< What this node's own health check found, one sentence. Empty: nothing.
    std::uint64_t queued_ms = 0;  ///< Time from the job's submission to a scheduler to this Join. 0: unknown.
    friend bool operator==(const Join&, const Join&) = default;
};

/// The sealed round, as one node needs it. (From the daemon; it stands here because Resume gives it back.)
struct Assigned {
    Round round = no_round;
    std::uint32_t group_rank = 0;
    std::uint32_t group_world_size = 1;
    std::uint32_t rank_base = 0;  ///< RANK of local rank 0.
    std::uint32_t world_size = 1;
    std::uint32_t role_rank_base = 0;
    std::uint32_t role_world_size = 1;
    std::uint32_t restart_count = 0;           ///< Charged restarts. Equal on all nodes.
    std::vector<std::string> store_addresses;  ///< Addresses of group rank 0, best first.
    std::uint16_t store_port = 0;              ///< 0: group rank 0's worker binds a port probed by its agent.
    /// For group rank 0 alone: addresses from which the round's nodes may come to its store.
    std::vector<std::string> store_clients;
    std::vector<std::string> notes;  ///< Differences of versions between nodes, one sentence each.
    /// Random bytes that this round's nodes share, from which the keys of its workers and of its agents' questions are
    /// derived. Empty: the job has no key.
    std::string secret;
    std::uint32_t heartbeat_ms = 0;  ///< The pace of this round's heartbeats (heartbeat_pace.h).
    friend bool operator==(const Assigned&, const Assigned&) = default;
};

/// First message after Hello on a reconnect while a round is running here: the connection was lost, the workers are
/// not.
struct Resume {
    Round round = no_round;
    bool succeeded = false;                ///< All local workers have exited with 0.
    Join as_joined;                        ///< The join of this node ...
    Assigned as_assigned;                  ///< ... and its assignment: a restarted daemon learns the round from them.
    std::uint32_t stop_grace_ms = 30'000;  ///< --shutdown-timeout here: how long its workers may take to stop.
    friend bool operator==(const Resume&, const Resume&) = default;
};

struct Ping {
    std::uint64_t sequence = 0;
    std::int64_t sent_ns = 0;  ///< Time on the agent's monotonic clock. The Pong returns it.
    friend bool operator==(const Ping&, const Ping&) = default;
};

/// One or more local workers failed. The round is over for everybody.
struct WorkersFailed {
    Round round = no_round;
    std::vector<Failure> failures;  ///< The earliest one first.
    friend bool operator==(const WorkersFailed&, const WorkersFailed&) = default;
};

/// All local workers exited 0. The agent now waits for JobEnded or RoundEnded: the exit barrier.
struct WorkersSucceeded {
    Round round = no_round;
    friend bool operator==(const WorkersSucceeded&, const WorkersSucceeded&) = default;
};

/// After RoundEnded and before the next Join or the end: what stopping this node's workers brought to light.
struct RoundReport {
    Round round = no_round;
    std::vector<Failure> failures;             ///< Workers that failed by themselves.
    std::uint32_t stopped_count = 0;           ///< Number of workers that muster stopped.
    std::int64_t checkpoint_step = -1;         ///< Step of the newest checkpoint that this node sees. -1: none.
    std::vector<WorkerActivity> activities{};  ///< Workers that were idle when the round ended.
    friend bool operator==(const RoundReport&, const RoundReport&) = default;
};

/// The agent leaves the job for good, workers gone (a signal, a drained node). `why` is for the others' messages.
struct Leave {
    std::string why;
    friend bool operator==(const Leave&, const Leave&) = default;
};

/// The answer to a Challenge: proof.h says of what.
struct Proof {
    std::string proof;
    friend bool operator==(const Proof&, const Proof&) = default;
};

enum class CommandVerb : std::uint8_t {
    drain_node = 0,    ///< One node stops its workers and leaves.
    notify_job = 1,    ///< All workers of the job receive a preemption notice.
    inject_fault = 2,  ///< A fault is injected into a part of the job.
};

/// Somebody asks for something. From an agent (for a person at its own host, or for a signal that it got) or, where
/// the job has a secret, on a connection of its own.
struct Command {
    std::uint32_t number = 0;  ///< The CommandAnswer returns it.
    CommandVerb verb = CommandVerb::drain_node;
    std::string node;  ///< The node to drain, or the target of a fault on an agent: HOST, or HOST:PID if several are on
                       ///< one host.
    std::string why;   ///< Reason for messages on the other nodes.
    Fault fault{};     ///< The fault of inject_fault.
    friend bool operator==(const Command&, const Command&) = default;
};

/// To FaultOrdered, before it takes effect.
struct FaultAnswer {
    std::uint32_t number = 0;
    bool done = false;
    std::string text;  ///< What was done, or why not.
    friend bool operator==(const FaultAnswer&, const FaultAnswer&) = default;
};

/// What an agent makes of one of its workers by its own rules and clock (agent/FAILURES.md).
enum class WorkerPace : std::uint8_t {
    usual = 0,
    overdue = 1,  ///< Idle beyond its deadline, outside all operations and sections: missing if others wait.
    waiting = 2,  ///< Inside one operation for long.
};

/// What a worker's steps took since the round's start, as it counts them itself. Without its count: 0.
struct StepTally {
    std::int64_t first_step = -1;  ///< The first one that it reported in this round. -1: none.
    std::uint64_t step_count = 0;
    std::uint64_t step_ns = 0;      ///< Of all but the first one.
    std::uint64_t measured_ns = 0;  ///< Of the steps that a gradient reducer measured; the next three are parts of it.
    std::uint64_t data_wait_ns = 0;
    std::uint64_t exposed_ns = 0;       ///< It waited for communication.
    std::uint64_t late_ns = 0;          ///< The longest wait of any rank minus its own.
    std::uint64_t sample_count = 0;     ///< Of all ranks.
    std::int64_t checkpoint_step = -1;  ///< The last checkpoint that is complete on disk. -1: none in this round.
    std::uint64_t checkpoint_failure_count = 0;
    friend bool operator==(const StepTally&, const StepTally&) = default;
};

/// The number of steps in one bucket of step_time_bounds (rendezvous/base/step_buckets.h).
struct StepTimeCount {
    std::uint64_t count = 0;
    friend bool operator==(const StepTimeCount&, const StepTimeCount&) = default;
};

struct SeenWorker {
    WorkerActivity at;  ///< Also filled for a busy worker: idle_ms is 0.
    WorkerPace pace = WorkerPace::usual;
    std::int32_t inside_percent = -1;  ///< Share of its recent time inside operations. -1: it has begun none recently.
    std::int64_t step = -1;            ///< The last step that it has reported. -1: none.
    StepTally tally{};
    friend bool operator==(const SeenWorker&, const SeenWorker&) = default;
};

/// How many workers of a node do what. Each running one counts once.
struct RankCounts {
    std::uint32_t training = 0;  ///< Nothing of the next ones.
    std::uint32_t waiting = 0;   ///< WorkerPace::waiting.
    std::uint32_t overdue = 0;   ///< WorkerPace::overdue.
    std::uint32_t stopped = 0;   ///< By a signal or a debugger.
    std::uint32_t section = 0;   ///< In a section that it has named.
    [[nodiscard]] std::uint64_t sum() const { return std::uint64_t{training} + waiting + overdue + stopped + section; }
    friend bool operator==(const RankCounts&, const RankCounts&) = default;
};

/// Steps of the newest checkpoints that a node knows, by where they are. -1: unknown.
struct TierSteps {
    std::int64_t memory = -1;     ///< Of the node's own workers, all of them.
    std::int64_t neighbour = -1;  ///< Copies of other nodes' ranks, in this one's memory.
    std::int64_t local = -1;      ///< On local disks. From the node of rank 0, as is the next one.
    std::int64_t shared = -1;     ///< In the checkpoint directory.
    friend bool operator==(const TierSteps&, const TierSteps&) = default;
};

/// One GPU that a node's workers see.
struct GpuBusy {
    std::uint32_t index = 0;    ///< As the driver counts them on the node.
    std::uint32_t percent = 0;  ///< Of the time in which a kernel ran.
    friend bool operator==(const GpuBusy&, const GpuBusy&) = default;
};

/// What an agent last saw of its workers: all that the others know of them where their node is lost, and what shows,
/// put together with the words of all others (JobSeen), who does not come.
struct WorkersSeen {
    Round round = no_round;
    std::vector<SeenWorker> workers{};  ///< Some of them, `counts` has all.
    RankCounts counts{};
    TierSteps checkpoints{};
    SectionTimes sections{};                  ///< In the round so far, of the worker that was longest in each.
    std::int64_t since_step_ns = -1;          ///< Since the last step of any of them. -1: none.
    std::vector<StepTimeCount> step_times{};  ///< Of rank 0, from its node. Empty: it counts none.
    std::vector<GpuBusy> gpus{};              ///< With --gpu-use, those whose driver answers.
    bool final = false;                       ///< The workers have ended: the steps are the last ones.
    friend bool operator==(const WorkersSeen&, const WorkersSeen&) = default;
};

/// The standby processes of a node (--warm-workers), which belong to no round, and their memory.
struct StandbysSeen {
    std::uint32_t count = 0;
    std::uint64_t memory_bytes = 0;
    friend bool operator==(const StandbysSeen&, const StandbysSeen&) = default;
};

/// The job's end is known here. The daemon may forget this agent.
struct EndAcknowledged {
    friend bool operator==(const EndAcknowledged&, const EndAcknowledged&) = default;
};

/// From the guardian, on a connection of its own after Hello with the dead agent's identity: agent and workers are
/// gone.
struct AgentDied {
    std::string why;
    friend bool operator==(const AgentDied&, const AgentDied&) = default;
};

// ---- daemon -> agent ----

struct Pong {
    std::uint64_t sequence = 0;
    std::int64_t sent_ns = 0;    ///< As in the Ping.
    std::int64_t daemon_ns = 0;  ///< Time on the daemon's monotonic clock.
    friend bool operator==(const Pong&, const Pong&) = default;
};

/// For the progress lines of those who wait; sent on change, at most once a second.
struct Gathering {
    std::uint32_t joined = 0;
    std::uint32_t nodes_min = 0;
    std::uint32_t nodes_max = 0;
    std::int64_t last_call_left_ms = -1;  ///< -1: the last call has not begun.
    std::string waiting_for;              ///< e.g. "2 more nodes", "gpu03 to stop its workers"
    friend bool operator==(const Gathering&, const Gathering&) = default;
};

/// A surplus node waits; it gets Assigned when it is needed and JobEnded at the end.
struct Parked {
    std::uint32_t position = 0;  ///< 0: the next one to be used.
    std::string why;             ///< Why the node is excluded. Empty: it is a spare.
    friend bool operator==(const Parked&, const Parked&) = default;
};

struct Peer {
    std::uint32_t group_rank = 0;
    std::string address;
    std::uint16_t port = 0;
    friend bool operator==(const Peer&, const Peer&) = default;
};

/// Sent after Assigned: whom this node asks when the daemon falls silent (client/core/fencing.h).
struct Peers {
    Round round = no_round;
    TreePlace place;          ///< This node's place among the members of the round that have not left.
    std::vector<Peer> above;  ///< Its parent and its grandparent, as far as it has them.
    friend bool operator==(const Peers&, const Peers&) = default;
};

enum class RoundEndReason : std::uint8_t {
    worker_failed = 0,
    node_lost = 1,
    node_left = 2,
    node_joined = 3,
    daemon_restarted = 4,  ///< The members did not agree on what is running.
};

/// Stop the workers of `round`, send RoundReport; then Join again, or wait for JobEnded when `final`.
struct RoundEnded {
    Round round = no_round;
    RoundEndReason reason = RoundEndReason::worker_failed;
    bool final = false;
    std::string why;  ///< one sentence: "rank 3 on gpu07 failed: exit code 1"
    friend bool operator==(const RoundEnded&, const RoundEnded&) = default;
};

/// This node is to leave: stop the workers within the grace and Leave. (Drain of one node, preemption.)
struct Drain {
    std::string why;
    friend bool operator==(const Drain&, const Drain&) = default;
};

enum class JobOutcome : std::uint8_t {
    succeeded = 0,
    failed = 1,
    crash_loop = 2,  ///< Failed, and restarts brought no newer checkpoint: another start would not help.
};

/// The last message of a job, to members, spares and late joiners ("finished").
struct JobEnded {
    JobOutcome outcome = JobOutcome::succeeded;
    Verdict verdict;  ///< Verdict of the last round.
    std::uint32_t restart_count = 0;
    std::string why;        ///< "worker failed and no restart is left (3 of 3 used)"
    std::string goodput{};  ///< "92.4 % of 3.2 h trained; ..." (events/goodput_ledger.h). Empty: the job had no round.
    friend bool operator==(const JobEnded&, const JobEnded&) = default;
};

enum class RefusalReason : std::uint8_t {
    version = 0,       ///< Another protocol version.
    terms_differ = 1,  ///< min, max, budget ... with both values.
    duplicate = 2,     ///< Another node holds this incarnation or node rank.
    job_in_use = 3,
    limit = 4,
    malformed = 5,
    secret = 6,    ///< The job's secret is missing or wrong, or the connection belongs to a user that is not served.
    job_full = 7,  ///< The job has all of its nodes, or is over, and this node runs another program.
};

struct Refused {
    RefusalReason reason = RefusalReason::malformed;
    std::string why;  ///< One sentence that says what to change.
    friend bool operator==(const Refused&, const Refused&) = default;
};

/// Where the job has a secret: nothing that is said on this connection counts before the right Proof.
struct Challenge {
    std::string nonce;
    std::string proof;  ///< Proof that the daemon knows the secret.
    friend bool operator==(const Challenge&, const Challenge&) = default;
};

/// The job will be stopped soon: every worker is to hear it, and goes on until it has saved.
struct NoticeGiven {
    std::string why;
    friend bool operator==(const NoticeGiven&, const NoticeGiven&) = default;
};

struct CommandAnswer {
    std::uint32_t number = 0;
    bool done = false;
    std::string text;  ///< What was done, or why not and what exists.
    friend bool operator==(const CommandAnswer&, const CommandAnswer&) = default;
};

/// To the agent that is meant, or whose worker is. It decides whether that may be.
struct FaultOrdered {
    std::uint32_t number = 0;  ///< The FaultAnswer returns it.
    Round round = no_round;    ///< The round in which the rank was found.
    Fault fault;
    friend bool operator==(const FaultOrdered&, const FaultOrdered&) = default;
};

/// This daemon stands by (STATES.md): another one leads. Nothing that was said to it counts; say it there.
struct NotLeader {
    std::string leader;  ///< The leader's endpoint, "gpu07:29400". Empty: unknown.
    friend bool operator==(const NotLeader&, const NotLeader&) = default;
};

/// A worker that is inside an operation, and for whom whoever is overdue is missing there.
struct WaitingWorker {
    std::string host;
    std::int32_t rank = 0;
    std::int32_t pid = 0;
    std::string operation{};  ///< "all_reduce 42 of world"
    friend bool operator==(const WaitingWorker&, const WaitingWorker&) = default;
};

struct JobLine {
    std::int32_t rank = -1;  ///< The rank, if the line is about one. -1: several or all.
    std::string text;
    friend bool operator==(const JobLine&, const JobLine&) = default;
};

/// What only the words of all nodes together show. Told to every node of the round; nothing is ended for it.
struct JobSeen {
    Round round = no_round;
    std::optional<WaitingWorker> waiting;  ///< Agents report their own overdue workers as missing there.
    std::vector<JobLine> lines;            ///< Lines for the log.
    friend bool operator==(const JobSeen&, const JobSeen&) = default;
};

/// The daemon cannot keep its state, because its disk is full or does not answer. It tells no decision before it can.
struct StateStalled {
    std::string why;       ///< The reason. Empty: the state is kept again.
    bool decided = false;  ///< A decision for this agent is made and held back.
    friend bool operator==(const StateStalled&, const StateStalled&) = default;
};

// ---- agent <-> agent, on the peer port ----

/// To the parent in the tree of the round (TreePlace), or around it to the grandparent: "These members have lost the
/// daemon. Have all?" Durations are on the asker's clock (client/core/loss_below.h).
struct PeerAsk {
    std::string job;
    Round round = no_round;
    std::uint32_t group_rank = 0;  ///< The queried group rank: an address may lead to another node of the job.
    std::uint32_t asker = 0;       ///< The asker's position.
    std::uint32_t tree_size = 0;   ///< Two nodes with trees of different sizes do not understand each other.
    bool lost = false;             ///< The asker has lost the daemon. If not, the next three fields mean nothing.
    std::uint32_t covered = 0;     ///< Bit i: so has the whole subtree of its child i.
    std::int64_t age_ns = 0;       ///< Age of the oldest promise of those that are covered.
    std::uint64_t echo = 0;        ///< Number of its question that this node answered last. 0: none.
    std::int64_t held_ns = 0;      ///< Time since that answer arrived.
    std::string leader = {};       ///< As in PeerAnswer.
    std::uint64_t number = 0;      ///< Of the asker's questions, from 1. It only grows.
    // Where the job has a key (client/core/peer_proof.h):
    std::string nonce = {};  ///< The asker's own.
    std::string proof = {};
    friend bool operator==(const PeerAsk&, const PeerAsk&) = default;
};

struct PeerAnswer {
    /// The round running at the answering agent. If it differs, the answer must not be relied on.
    Round round = no_round;
    bool leader_lost = false;      ///< The answering agent has lost the daemon.
    std::int64_t all_age_ns = -1;  ///< All members have: age of the oldest promise. -1: not known.
    /// HOST:PORT of the daemon that it hears, where there are several; empty: none, or the only one.
    std::string leader = {};
    // Where the job has a key:
    std::string nonce = {};  ///< Of the answering agent. The next question's proof covers it.
    std::string proof = {};  ///< Of this answer to that question.
    friend bool operator==(const PeerAnswer&, const PeerAnswer&) = default;
};

using Message =
    std::variant<Hello, Join, Resume, Ping, WorkersFailed, WorkersSucceeded, RoundReport, Leave, EndAcknowledged,
                 AgentDied, Pong, Gathering, Assigned, Parked, Peers, RoundEnded, Drain, JobEnded, Refused, PeerAsk,
                 PeerAnswer, Proof, Command, FaultAnswer, WorkersSeen, StandbysSeen, Challenge, NoticeGiven,
                 CommandAnswer, NotLeader, FaultOrdered, JobSeen, StateStalled>;

}  // namespace muster::native
