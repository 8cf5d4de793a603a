// What mpirun says about the processes that it has started, of which this one is one: Open MPI's variables, or those of
// Hydra (MPICH, Intel MPI). Pure.
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
    bool one_on_each = true;                    ///< one process on each host: `rank` is the host's place
    std::string job;                            ///< "mpi-727580673"; empty: it does not say
    std::uint16_t port = 0;                     ///< for the rendezvous; another one for each mpirun
    std::vector<std::string> mpirun_addresses;  ///< of the host where mpirun itself runs; empty: it does not say
    bool is_bound = false;                      ///< mpirun has bound it to some of the host's CPUs
};

/// Is this one of several processes that mpirun has started, and not within a worker of another muster?
bool is_mpi_process(const Environment& environment);

/// Of such a process. The error is one line for the user.
Result<MpiProcess> mpi_process(const Environment& environment);

}  // namespace muster::launcher
