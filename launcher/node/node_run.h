// One node's part of a job, from the fork of the guardian to the last acknowledgement.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "agent/process/guardian.h"
#include "agent/supervision/supervisor.h"
#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/node/service_unit.h"
#include "launcher/options/entry.h"

namespace muster::launcher {

/// Nothing was started: the exit code and one sentence.
struct NotLaunched {
    int exit_code = 0;
    std::string why;
};

class NodeRun {
  public:
    /// `config.workers_per_node` is a number by now. `unit` hears how it goes, and outlives this.
    NodeRun(LaunchConfig config, Entry entry, Environment environment, const ServiceUnit& unit);
    ~NodeRun();
    NodeRun(const NodeRun&) = delete;
    NodeRun& operator=(const NodeRun&) = delete;

    /// Hosts the daemon if that is this node's, joins, runs the workers to the job's end, and returns when every agent
    /// of the job has heard of it (10 s at most). Once.
    std::variant<agent::Ending, NotLaunched> run(agent::GuardianHandle guardian);

    [[nodiscard]] const std::string& host() const;
    /// Why the scheduler has sent a signal; empty: it has not, or does not say.
    [[nodiscard]] const std::string& signal_reason() const;
    /// Of a step that is not on the disk although it was saved (agent.h: on_unsaved); empty: there is none.
    [[nodiscard]] const std::string& unsaved() const;

  private:
    class Body;
    std::unique_ptr<Body> body_;
};

/// What the guardian does when the agent is dead: tells the daemon (testament.h).
agent::GuardianConfig guardian_config(const LaunchConfig& config);

}  // namespace muster::launcher
