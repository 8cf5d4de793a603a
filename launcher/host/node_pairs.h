// Level 2 of muster doctor: the nodes test each other in pairs. It starts muster as a job of one worker a node,
// muster-pairs (worker_runtime/pairs). Rendezvous, keys, schedulers and ports are therefore those of any job.
#pragma once

#include <string>
#include <vector>

#include "agent/doctor/look.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

struct PairsOrder {
    int node_count = 0;                       ///< 0: what the scheduler tells.
    std::string endpoint;                     ///< --rdzv-endpoint. Empty: what the scheduler tells.
    std::string job = "doctor";               ///< --rdzv-id
    int wait_seconds = 30;                    ///< Nodes that have not come by then are left out, and named.
    std::string directory = "/tmp";           ///< For the result.
    std::vector<std::string> muster_options;  ///< Further options of muster, as given.
};

/// Blocks until the job has ended; its own deadlines bound it. The look has the records node, pair and path of
/// muster-pairs; without a result it was cut, and says why. The job's messages go to stderr.
agent::Look look_between_nodes(const PairsOrder& order);

}  // namespace muster::launcher
