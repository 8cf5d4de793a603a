// The configuration of an agent, filled in by the launcher.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/diagnosis/hang_watch.h"
#include "agent/evidence/health_check.h"
#include "agent/evidence/node_looks.h"
#include "agent/supervision/log_layout.h"
#include "agent/supervision/supervisor.h"
#include "agent/supervision/worker_environment.h"

namespace muster::agent {

/// What only the launcher knows of this node's ways; each may answer nothing, or be empty. Asked once a round.
struct NetworkFacts {
    std::function<std::string()> own_address;     ///< Address at which other nodes reach this node.
    std::function<std::string()> daemon_address;  ///< Address at which this node reaches the daemon.
};

struct AgentConfig {
    SupervisorConfig supervisor;  ///< The join, this host's name, the grace.
    WorkerSpec workers;
    /// The key that a round's workers share, 32 bytes, given to each on its channel; from Assigned::secret. Empty
    /// function: the workers get none.
    std::function<std::string(const std::string& round_secret)> ranks_key;
    std::string shown_job = "none";  ///< Job id as users know it. Part of the command socket's address.
    LogChoices logs;
    NetworkFacts network;
    std::vector<int> handled_signals;   ///< Forwarded to the workers; then the agent leaves.
    bool allow_faults = false;          ///< --allow-faults: muster fault may inject faults into this node.
    HangConfig hang;                    ///< Limits for workers without progress.
    Duration lease = 5s;                ///< The guardian is fed every lease/10.
    bool is_alone = false;              ///< ClientConfig::is_alone: its held workers are not killed either.
    std::optional<LookPlan> preflight;  ///< --preflight: what of this node is looked at while it joins.
    HealthCheckConfig health;           ///< --health-check and --health-dir.
    bool warm_before_join = false;      ///< --warm-join: the node joins when its standby processes are ready.
    std::string metrics_file;           ///< Of --metrics-file, absolute. Empty: none.
    bool gpu_use = false;               ///< --gpu-use: the driver is asked how busy the GPUs are while workers run.
    Duration persist_limit = 60s;  ///< Time limit for writing copies in memory to disk. Zero: they are not written.
};

}  // namespace muster::agent
