// The guardian: a small process between the agent and the workers, which ensures that no process is left behind.
//
//   agent -> guardian -> workers -> their children
//
// It is forked from the launcher without exec. It has its own session and blocks all blockable signals, so that a
// Ctrl-C or a `kill` of the foreground group does not reach it. It is a child subreaper: a descendant that loses its
// parent, in any session, becomes the guardian's child. "Nothing is left" therefore means "the guardian has no
// children", which the kernel answers in one call (waitid: ECHILD).
//
// It serves its agent over a seqpacket socket (guardian_wire.h) with a poll loop, one thread, no asio and no log. It
// kills its whole tree
//   * when it receives the order (kill_tree), repeatedly until nothing is left;
//   * when it has not been fed for `unfed_max`: it then continues to serve, and reports this when the agent wakes up;
//   * when the agent is dead (end of the socket): it then calls `on_agent_death`, removes empty directories of the
//   agent's
//     log directory, and exits.
// If the guardian itself dies, each worker dies by its parent-death signal. The workers' children become the agent's,
// which is a subreaper too and kills them. Then a second guardian takes over, which the first one had forked as a
// reserve (guardian_pair.h).
//
// Exits are read from SIGCHLD in a signalfd, not from one pidfd per worker: the guardian must also reap adopted
// processes that it has not known, and one mechanism for all of them needs no fallback on old kernels. As the only
// reaper it may use plain pids: a pid that it has not reaped cannot belong to another process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

enum class CgroupUse {
    when_delegated,  ///< Workers run in a child cgroup if a cgroup v2 directory is writable. One write kills them.
    never,           ///< The tree is found by parent pids only.
};

struct GuardianConfig {
    Duration unfed_max = 4s;  ///< 0.8 lease, counted from the first feed(). Zero: never.
    CgroupUse cgroup = CgroupUse::when_delegated;
    Duration stuck_after = 5s;  ///< If a kill has not emptied the tree by then, TreeStuck reports it.

    /// Called in the guardian's process after the agent's death, when the tree is empty (or stuck): tells the daemon
    /// AgentDied. It gets the bytes last given to PosixProcessHost::set_death_notice(), or nothing. It runs beside no
    /// other thread, may use plain sockets and memory, and is cut off after `on_agent_death_max`. Not called after an
    /// end in order (the destructor of PosixProcessHost). A pure function of its captures: they are those of the moment
    /// of the fork.
    std::function<void(std::string_view notice)> on_agent_death;
    Duration on_agent_death_max = 2s;
};

/// What the agent holds of its guardian. PosixProcessHost takes it over.
struct GuardianHandle {
    pid_t pid = 0;
    FileDescriptor pidfd;   ///< Invalid if the kernel has no pidfd_open (before 5.3).
    FileDescriptor socket;  ///< Seqpacket, non-blocking, close-on-exec.
    std::string cgroup;     ///< The cgroup of the workers. Empty: none.
};

/// Forks the guardian. Call it first of all: before any thread, asio object or child process of the caller exists; a
/// second thread is refused (invalid_argument), because it could hold a lock that nobody releases in the copy. Makes
/// the caller a child subreaper, and gives SIGCHLD its default action. Workers inherit the caller's standard streams,
/// working directory, umask and limits of this moment.
Result<GuardianHandle> fork_guardian(GuardianConfig config);

}  // namespace muster::agent
