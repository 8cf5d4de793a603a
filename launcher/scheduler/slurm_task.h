// Reads the Slurm step of this task: its hosts, the port of the rendezvous, the number of GPUs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

struct SlurmTask {
    std::vector<std::string> hosts;          ///< Hosts of the step.
    std::uint32_t host_number = 0;           ///< This host's index in `hosts`.
    std::uint32_t task_on_host = 0;          ///< This task's index on its host.
    std::string job;                         ///< "4711.0", or "4711.0-1" after the first requeue.
    std::uint16_t port = 0;                  ///< Port of the rendezvous on the first host.
    std::optional<std::uint32_t> gpu_count;  ///< GPUs that this task may use. Nothing: none were requested.
    std::uint32_t gpus_asked_for = 0;        ///< --gpus-per-node of the job or the step. 0: not given.
    std::uint32_t gpus_on_host = 0;          ///< GPUs of the step on this host. 0: unknown.
    std::uint32_t hosts_elsewhere = 0;       ///< Hosts in components of a heterogeneous job that the step does not use.
};

/// True for a task of srun, unless it is inside a worker of another muster or was started by mpirun.
bool is_slurm_task(const Environment& environment);

/// Call it if is_slurm_task(). The error names the invalid variable.
Result<SlurmTask> slurm_task(const Environment& environment);

/// The step's hosts as Slurm writes them, on its first host. Empty elsewhere.
std::string slurm_hosts_of_first_task(const Environment& environment);

/// A hint if this muster may use fewer CPUs (`usable`) than it starts workers, and the job has more on this host. Only
/// on the step's first host, else empty.
std::string slurm_cpu_hint(const Environment& environment, std::uint32_t workers, std::uint32_t usable);

/// The number of hosts of the allocation if this process runs in it but outside of srun, else 0.
std::uint32_t slurm_hosts_without_task(const Environment& environment);

}  // namespace muster::launcher
