// What Slurm says about the step of which this process is a task: who else is in it, where to meet, how many GPUs.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

struct SlurmTask {
    std::vector<std::string> hosts;          ///< of the step
    std::uint32_t host_number = 0;           ///< this host's place among them
    std::uint32_t task_on_host = 0;          ///< this task's, among those of this host
    std::string job;                         ///< "4711.0"; "4711.0-1" after the first requeue
    std::uint16_t port = 0;                  ///< for the rendezvous on the first host
    std::optional<std::uint32_t> gpu_count;  ///< that this task may use; nothing: none was asked for
    std::uint32_t gpus_asked_for = 0;        ///< with --gpus-per-node, of the job or the step; 0: not so
    std::uint32_t gpus_on_host = 0;          ///< of the step; 0: not told
    std::uint32_t hosts_elsewhere = 0;       ///< of a heterogeneous job, in components that the step leaves out
};

/// Is this process a task of srun's, and not within a worker of another muster, or started by mpirun?
bool is_slurm_task(const Environment& environment);

/// Of such a process. An error names the variable that does not read.
Result<SlurmTask> slurm_task(const Environment& environment);

/// One line where Slurm gives this host's one muster fewer CPUs (`usable`) than it starts workers, and the job has more
/// of them on the host; empty otherwise, and on all hosts of the step but the first.
std::string slurm_cpu_hint(const Environment& environment, std::uint32_t workers, std::uint32_t usable);

/// How many hosts the allocation has, where this process is in it but in no task of srun's; 0 otherwise.
std::uint32_t slurm_hosts_without_task(const Environment& environment);

}  // namespace muster::launcher
