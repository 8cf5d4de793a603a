// Determines why a worker ended, from facts available a few milliseconds after the end: a cause, and a sentence that
// says what to do. Pure; agent/evidence/end_evidence.h collects the facts.
//
// The order is that of certainty: the kernel's messages about this process, then the counters that rose while it ran,
// then the worker's own error text, then the absence of all of these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/diagnosis/kernel_log.h"
#include "rendezvous/wire/native/failure_cause.h"
#include "rendezvous/wire/native/worker_end.h"

namespace muster::agent {

/// A control group with a memory controller (v2's memory.events, v1's memory.oom_control) that holds the workers.
struct MemoryGroup {
    std::string path;
    std::int64_t limit_bytes = -1;  ///< Smallest limit of the cgroup and its parents. -1: none.
    std::string limited_by;         ///< The file with that limit.
    std::int64_t peak_bytes = -1;   ///< Peak use under that limit. -1: unknown.
};

/// Who sent the SIGKILL that ended a worker.
enum class Killer {
    unknown,
    muster,  ///< muster killed the worker: no out-of-memory kill, whatever the counters show.
};

struct EndFacts {
    WorkerEnd end;
    Killer killer = Killer::unknown;
    std::int32_t pid = 0;
    std::string_view message;      ///< Message of the error file.
    std::string_view stderr_tail;  ///< Last output on stderr.
    /// What the kernel has logged since the round's start; only where kernel_log_read.
    std::vector<KernelEvent> kernel_events;
    bool kernel_log_read = false;
    /// Out-of-memory kills in the group (or, without one, on the host) that have just been counted and have no victim
    /// yet (oom_tally.h); empty: nobody counts them.
    std::optional<std::int64_t> oom_kills;
    std::optional<MemoryGroup> memory_group;
    std::int64_t address_space_limit_bytes = -1;  ///< RLIMIT_AS. -1: none.
    std::int64_t shm_bytes = -1;                  ///< Size of /dev/shm. -1: unknown.
    /// Measured right after the end: memory held by this worker alone is free again.
    std::int64_t shm_free_bytes = -1;
    std::string interpreter;  ///< Interpreter or loader named by a program that cannot be executed.
    std::string core_file;    ///< A path, or the receiver of the dump.
};

/// The cause; `unknown` with an empty text where nothing is known beyond the end itself.
FailureCause end_cause(const EndFacts& facts);

/// A sentence about a GPU error that names no process, for whoever reads the launcher's lines: it may be the reason of
/// an end that has no other one. Empty: the event is something else.
std::string unnamed_gpu_errors(const KernelEvent& event);

/// The cause is the kernel's, the driver's or the machine's doing: no exception of the worker's own, whatever exit code
/// it left by.
bool is_from_outside(CauseKind kind);

}  // namespace muster::agent
