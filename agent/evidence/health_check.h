// --health-check: runs the site's own check before each join. Slurm's HealthCheckProgram and LBNL NHC fit as they are.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/doctor/health_verdict.h"
#include "agent/process/side_runs.h"
#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

enum class SickNode { leaves, is_named_only };

struct HealthCheckConfig {
    std::string command;  ///< For /bin/sh -c. Empty: every node is healthy.
    Duration limit = 30s;
    std::string job;  ///< MUSTER_JOB of the check.
    SickNode sick_node = SickNode::leaves;
};

class HealthCheck {
  public:
    /// `loop` outlives it.
    HealthCheck(boost::asio::io_context& loop, HealthCheckConfig config) : runs_(loop), config_(std::move(config)) {}

    /// Calls `done` once: at once without a command, else from the loop at the check's end or at the limit, when the
    /// check and its process group are killed. `last_round` is MUSTER_ROUND; nothing before the first round. Another
    /// call takes the place of the one before.
    void run(std::optional<Round> last_round, std::function<void(HealthVerdict)> done);
    /// `done` is not called any more.
    void drop() { runs_.drop_all(); }

  private:
    SideRuns runs_;
    HealthCheckConfig config_;
};

}  // namespace muster::agent
