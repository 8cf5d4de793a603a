// --preflight=pairs|full: tests the nodes of a job before its first round.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/doctor/doctor_limits.h"
#include "agent/doctor/finding.h"
#include "launcher/config/environment.h"
#include "launcher/node/node_events.h"
#include "launcher/options/options.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

/// Checks --preflight-skip, and reads --preflight-limits. The error is one sentence for the user.
Result<void> take_preflight_rules(LaunchConfig& config);

/// Those of --preflight-limits, and else the defaults.
agent::DoctorLimits preflight_limits(const LaunchConfig& config);

/// What was found out about the nodes.
struct PreflightVerdict {
    std::vector<agent::Finding> findings;  ///< Of level warning and above, the gravest first.
    /// The first critical finding about this node, its links or a GPU: its check and the fault, without what differs
    /// between nodes. Empty: none.
    std::string own_fault;
};

/// Blocks: with `pairs` the nodes meet once as another job and test their links; with `full` this node then tests its
/// GPUs; nothing with less. A job of one node has no links. The rendezvous and the GPUs' deadlines bound it. If too few
/// nodes came to the test within the job's join_timeout, that is made short: who waited in vain need not wait twice.
std::optional<PreflightVerdict> test_before_job(Launch& launch, const Environment& environment);

/// Makes an event of each finding, which is logged as a warning, "preflight: ...", and one of the verdict. Returns
/// LaunchConfig::preflight_fault: the own fault as the nodes of the job are told of it. Empty: none.
std::string tell_preflight(const std::optional<PreflightVerdict>& verdict, NodeEvents& events);

}  // namespace muster::launcher
