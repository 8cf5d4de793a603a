// Reads this process's place among those that mpirun started, from the variables of Open MPI or Hydra (MPICH, Intel
// MPI). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

struct MpiProcess {
    std::uint32_t rank = 0;
    std::uint32_t host_count = 0;
    std::uint32_t rank_on_host = 0;
    bool one_on_each = true;                    ///< One process on each host: `rank` is the host's index.
    std::string job;                            ///< "mpi-727580673". Empty: unknown.
    std::uint16_t port = 0;                     ///< Port of the rendezvous, different for each mpirun.
    std::vector<std::string> mpirun_addresses;  ///< Addresses of the host where mpirun runs. Empty: unknown.
    bool is_bound = false;                      ///< True if mpirun bound it to some of the host's CPUs.
};

/// True for one of several processes that mpirun started, unless it is inside a worker of another muster.
bool is_mpi_process(const Environment& environment);

/// Call it if is_mpi_process(). The error is one line for the user.
Result<MpiProcess> mpi_process(const Environment& environment);

/// The hosts of the allocation of Slurm in which mpirun runs, as Slurm writes them, in the first process. Empty
/// elsewhere: mpirun itself tells no process the names of its hosts.
std::string mpi_hosts_of_first_process(const Environment& environment);

}  // namespace muster::launcher
