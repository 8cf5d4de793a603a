// Reads and checks a worker's environment variables. Pure: the variables are passed as a function.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "rendezvous/base/error.h"

namespace muster::runtime {

struct Environment {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
    int local_world_size = 1;
    int group_rank = 0;
    std::int64_t round = 0;  ///< MUSTER_ROUND; elsewhere the restart count, which also never repeats in a job
    std::int64_t restart_count = 0;
    std::string job;         ///< TORCHELASTIC_RUN_ID
    std::string store_host;  ///< empty: there is no store, the world is this process
    std::uint16_t store_port = 0;
    bool store_is_served = true;  ///< True if the launcher serves the store. If not, rank 0 would have to.
    int preemption_signal = 0;    ///< the launcher's, by which it and the scheduler give notice; 0: none
    std::string agent_socket;     ///< empty: no agent that speaks muster's channel
    std::string agent_token;      ///< what that agent asks for before it hears this worker
    std::string ranks_security;   ///< "auth" or "encrypt" if the agent's channel gives the ranks' key; else empty
};

/// The variable's value, nothing where it is not set.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

/// Without any of RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, a world of one. Else invalid_argument names the
/// variable that is missing or does not read, or the two that contradict each other, with their values.
Result<Environment> read_environment(const Lookup& lookup);

}  // namespace muster::runtime
