// What an agent needs to know, filled in by the launcher.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/diagnosis/hang_watch.h"
#include "agent/supervision/log_layout.h"
#include "agent/supervision/supervisor.h"
#include "agent/supervision/worker_environment.h"

namespace muster::agent {

/// What only the launcher knows of this node's ways; each may answer nothing, or be empty. Asked once a round.
struct NetworkFacts {
    std::function<std::string()> own_address;     ///< the one at which other nodes reach this one
    std::function<std::string()> daemon_address;  ///< at which this node reaches the daemon
};

struct AgentConfig {
    SupervisorConfig supervisor;  ///< the join, this host's name, the grace
    WorkerSpec workers;
    std::string shown_job = "none";  ///< as people know it: where commands are taken
    LogChoices logs;
    NetworkFacts network;
    std::vector<int> handled_signals;  ///< forwarded to the workers, then the agent leaves
    bool allow_faults = false;         ///< --allow-faults: muster fault may lose parts of this node
    HangConfig hang;                   ///< what is told of workers that do nothing, and when one is ended
    int preemption_signal = 0;         ///< a notice to all workers of the job; 0: none
    Duration lease = 5s;               ///< the guardian is fed each lease/10
    Duration persist_limit = 60s;      ///< for bringing copies in memory to the disk; zero: they are not
};

}  // namespace muster::agent
