// Checks whether another process survives a signal, and which signal a worker ignores at its start.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster::agent {

/// Whether the process handles `signal`, by the SigCgt line of /proc/PID/status. False where that cannot be read.
bool handles_signal(std::int32_t pid, int signal);

/// The same for the text of such a file.
bool status_handles_signal(std::string_view status, int signal);

/// The signal that workers start to ignore; 0: none. A scheduler sends its notice to every process of the job, those
/// that know nothing of it included (Slurm's --signal, SGE's XCPU): they must not end by it. A handler that a worker
/// sets later counts as ever. Not ignored is a preemption signal by which workers are stopped, or that means something
/// else to them (SIGTERM, SIGINT, SIGCHLD).
int ignored_by_workers(int preemption_signal);

}  // namespace muster::agent
