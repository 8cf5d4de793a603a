// The agent's interface to processes, so that tests can run the driver against a script.
//
// The real implementation (posix_process_host.h) talks to the guardian, the parent of all workers:
//   agent -> guardian -> workers.
// The guardian has its own session, is a child subreaper, reports exits, reaps adopted processes, and kills its whole
// descendant tree when the agent is dead or has stopped feeding it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/worker_end.h"

namespace muster::agent {

/// Where one output stream of one worker goes. Several may be true at once.
struct StreamPlan {
    bool inherit = true;     ///< The worker writes to the launcher's own stream directly.
    bool console = false;    ///< The pump writes whole lines with `prefix` to the launcher's stream.
    bool terminal = false;   ///< The pump's end is a pty, so the worker detects a terminal (progress bars, colours).
    bool keep_tail = false;  ///< The last 64 KiB of stderr are kept for the failure report.
    std::string file;        ///< All output is appended to this file. Empty: none.
    std::string prefix;      ///< "[default0]:". Empty: bytes are forwarded as they arrive.
    /// Lines for the console that other ranks print as well are shown once (agent/output/line_fold.h).
    struct Fold {
        std::uint32_t rank = 0;
        std::uint32_t among = 0;  ///< So many workers of this node are shown.
    };
    std::optional<Fold> fold;
    std::vector<std::string> filters;  ///< Lines that contain one of these also go to `filtered_file`, with the prefix.
    std::string filtered_file;
    /// Not empty: lines for the console go to the journal, each a record with these fields, and without the prefix.
    std::string journal_fields;
    // inherit, console and file all false: /dev/null.
};

/// Whose output a log file holds.
struct LogOwner {
    std::uint64_t round = 0;
    std::uint32_t rank = 0;
    std::string host;
    friend bool operator==(const LogOwner&, const LogOwner&) = default;
};

struct WorkerCommand {
    std::uint32_t local_rank = 0;
    std::vector<std::string> argv;            ///< argv[0] is looked up in PATH of `environment` unless it has a '/'.
    std::vector<std::string> environment;     ///< The complete environment, "NAME=value".
    std::vector<std::uint32_t> cpus;          ///< CPUs that the worker is bound to, below cpus_max. Empty: the agent's.
    std::vector<std::uint32_t> memory_nodes;  ///< Preferred NUMA nodes for its memory. Empty: the agent's.
    int ignored_signal = 0;                   ///< Signal that is ignored at its start. 0: none.
    std::string heading;  ///< "--- round 3 ---": written with the time as a line of each file before the first byte.
    std::optional<LogOwner> owner;  ///< For the index of each file (agent/output/log_index.h).
    StreamPlan stdout_plan;
    StreamPlan stderr_plan;
};

struct WorkerStarted {
    std::uint32_t local_rank = 0;
    std::int32_t pid = 0;
};
/// Exactly once for each command given to start(): also when it never started (NotStarted) or was killed.
struct WorkerEnded {
    std::uint32_t local_rank = 0;
    std::int32_t pid = 0;  ///< 0: it never started.
    WorkerEnd end = {};
    Instant at = {};
    std::string stderr_tail = {};  ///< Set if its plan has keep_tail.
    bool unfed = false;            ///< The guardian killed it because feed() was not called in time.
    bool orphaned = false;         ///< It died with the guardian.
    bool group_left = false;       ///< Other processes of its group are alive. GroupEmpty reports their end.
};
/// The last process that an ended worker had left in its process group is gone. Comes after that worker's end, or not
/// at all when TreeEmpty says more.
struct GroupEmpty {
    std::uint32_t local_rank = 0;
};
/// The answer to kill_tree(): nothing of the workers is left that keep() has not named, neither leaders, nor their
/// groups, nor any descendant that the guardian adopted.
struct TreeEmpty {};
/// kill_tree() was asked for some seconds ago and these are still there (a system call that cannot be interrupted: a
/// dead network disk, a hung driver). The guardian goes on trying; TreeEmpty follows if it ever succeeds.
struct TreeStuck {
    std::vector<std::int32_t> pids;
};
/// The guardian is gone (killed, or its own failure). Workers have died by their parent-death signal, and what they
/// left behind has been killed; a WorkerEnded for each that had not ended came before, `orphaned` where that was its
/// end.
struct GuardianLost {
    std::string why;
    Instant at;
    bool replaced = false;  ///< True: another guardian has taken over. False: no worker can be started any more.
};
/// How long a stopped worker waits for the end of a child that has not got the signal, until the child gets it too
/// (awaited_children.h).
struct AwaitedTimeouts {
    Duration idle{};  ///< Timeout while neither the child nor its descendants are active.
    Duration busy{};  ///< Timeout in any case.
};
using ProcessEvent = std::variant<WorkerStarted, WorkerEnded, GroupEmpty, TreeEmpty, TreeStuck, GuardianLost>;

class ProcessHost {
  public:
    virtual ~ProcessHost() = default;

    /// Starts one worker for each command, in order. Answers WorkerStarted or WorkerEnded{NotStarted} for each.
    /// Between kill_tree() and its TreeEmpty nothing can be started (NotStarted, ECANCELED).
    virtual void start(std::vector<WorkerCommand> commands) = 0;
    /// Sends `signal` to the leader of every worker that has not ended.
    virtual void signal_leaders(int signal) = 0;
    /// From now on, until the workers have ended, sends `signal` to children for whose end a stopped worker waits.
    virtual void follow_up(int signal, AwaitedTimeouts patience) = 0;
    /// From now on signal_leaders(), follow_up() and kill_tree() leave alone the workers of these local ranks, and
    /// whatever has them for an ancestor. The death of the agent and a lack of feed() do not.
    virtual void keep(const std::vector<std::uint32_t>& /*local_ranks*/) {}
    /// What the running worker of this local rank prints from now on is of another round. Its log files get no heading,
    /// because a line of it may have begun before.
    virtual void change_owner(std::uint32_t /*local_rank*/, const LogOwner& /*owner*/) {}
    /// Sends `signal` to the process group of a worker, or to what an ended one has left in it, if anything.
    virtual void signal_group(std::uint32_t local_rank, int signal) = 0;
    /// SIGKILL for everything that is left and not kept, descendants in other sessions included; answers TreeEmpty when
    /// it is empty (at once if nothing was started). Also how leftovers of workers that ended by themselves are
    /// removed.
    virtual void kill_tree() = 0;
    /// The guardian does not carry that out: it was stopped. It is killed, and the workers with it; answers
    /// GuardianLost, and the TreeEmpty that kill_tree() owes.
    virtual void kill_guardian() = 0;
    /// Tells the guardian that the agent lives. Unfed for `0.8 lease` (counted from the first call), it kills the tree
    /// and serves on: an agent that was stopped and continues finds its workers ended, with `unfed` set.
    virtual void feed() = 0;

    /// This node has no round, and may start workers with such commands in one: standby processes may be made for them.
    /// Calls `when_ready`, if it is given, when they are ready or no more come, at once or later from the loop. After
    /// end_standbys() it is not called.
    virtual void expect(const std::vector<WorkerCommand>& /*commands*/, std::function<void()> when_ready) {
        if (when_ready) when_ready();
    }
    /// Ends the standby processes that wait for another round, if there are any: the workers that run now are the last.
    virtual void end_standbys() {}
    /// Should this process die without its destructors, what of `folder` is empty then is removed.
    virtual void remove_after_death(std::string folder) = 0;
    /// Reaps the processes that health checks have left behind and that have ended. Nobody else waits for them.
    virtual void reap_left_behind() {}

    std::function<void(ProcessEvent)> on_event;  ///< Called from the loop, never from inside one of the calls above.
};

}  // namespace muster::agent
