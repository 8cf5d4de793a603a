// Runs one node's part of a job, from the fork of the guardian to the last acknowledgement.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/process/guardian.h"
#include "agent/supervision/failure_report.h"
#include "agent/supervision/supervisor.h"
#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/node/gpu_job_map.h"
#include "launcher/node/node_events.h"
#include "launcher/node/service_unit.h"
#include "launcher/options/entry.h"

namespace muster::launcher {

/// No worker was started: the exit code and one sentence.
struct NotLaunched {
    int exit_code = 0;
    std::string why;
};

class NodeRun {
  public:
    /// `config.workers_per_node` is final. `unit` receives the status, and `events` what happens; both must outlive
    /// this object.
    NodeRun(LaunchConfig config, Entry entry, Environment environment, const ServiceUnit& unit, NodeEvents& events);
    ~NodeRun();
    NodeRun& operator=(NodeRun&&) = delete;

    /// Called once, when this node's part is over and all that a report has is known.
    using OnEnding = std::function<void(const agent::Ending&)>;
    /// Hosts the daemon if it is this node's, joins, and runs the workers to the job's end. After `on_ending` it serves
    /// viewers of the log files, for some 5 s at most, and returns when every agent of the job has acknowledged the
    /// end, at most 10 s later. Call it once.
    std::optional<NotLaunched> run(agent::GuardianHandle guardian, OnEnding on_ending);

    /// What a report tells of this run, as far as it is known: for an ending, from run()'s on_ending on.
    [[nodiscard]] agent::ReportContext report_context() const;

  private:
    class Body;
    std::unique_ptr<Body> body_;
};

/// Makes the guardian report the agent's death to the daemon (death_notice.h), and remove what monitoring reads of this
/// node.
agent::GuardianConfig guardian_config(const LaunchConfig& config, std::shared_ptr<GpuJobMap> gpu_jobs);

}  // namespace muster::launcher
