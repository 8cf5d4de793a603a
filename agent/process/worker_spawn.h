// Starts one worker process. Called by the guardian's only thread, which lives until the guardian's end: a parent-death
// signal fires when the forking *thread* ends.
#pragma once

#include <sys/types.h>

#include "agent/process/guardian_wire.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/wire/native/worker_end.h"

namespace muster::agent {

struct SpawnRequest {
    const guardian_wire::Image& image;
    int stdout_fd = -1;  ///< -1: the caller's own stdout.
    int stderr_fd = -1;
    int cgroup_directory = -1;  ///< The worker's cgroup. -1: the caller's.
    int standby_fd = -1;        ///< Becomes the child's descriptor 3. -1: it has none.
    int cgroup_procs = -1;      ///< cgroup.procs of the same cgroup, for kernels without CLONE_INTO_CGROUP.
};

/// A worker on its way: the child runs, but its program may not yet. Or there is no child: pid 0, and why.
struct SpawnResult {
    pid_t pid = 0;
    FileDescriptor report;  ///< Becomes readable when the start has succeeded or failed.
    NotStarted failure;
};

/// Forks and returns at once: an exec can take long (a program on a network disk), and the guardian must be able to
/// kill meanwhile. The worker gets a session and a process group of its own, an empty signal mask, every signal
/// at its default but the image's ignored one, no descriptors but 0, 1 and 2 (and a standby process 3), and is killed
/// when the caller dies. A name without '/' is searched in PATH of the *worker's* environment, as Python's subprocess
/// does for torchrun; a file without a known format is refused (ENOEXEC), not given to a shell.
SpawnResult spawn_worker(const SpawnRequest& request);

enum class SpawnState {
    starting,
    running,  ///< Its program was started, or it was killed just before.
    failed,   ///< The child has exited or is about to exit.
};
/// What `report` says at this moment; fills `failure` if it is `failed`. When the child has been reaped the answer is
/// not `starting`.
SpawnState read_spawn_report(int report, NotStarted& failure);

}  // namespace muster::agent
