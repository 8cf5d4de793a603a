// Looks at this node for a caller that has nothing else to do meanwhile.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "agent/doctor/check_table.h"
#include "agent/evidence/node_looks.h"
#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

/// What muster doctor looks at and what it leaves out.
struct DoctorOrder {
    std::vector<std::string> directories;  ///< Absolute paths.
    std::set<std::string> skip;
    agent::DoctorLimits limits;
    agent::GpuTests gpu_tests = agent::GpuTests::skipped;
};

/// The text of a file of limits (agent/doctor/doctor_limits.h). The error says in one sentence what is wrong with it.
Result<std::string> read_limits_file(const std::string& path);

/// Blocks until every look has ended or met its deadline (agent/evidence/node_looks.h). A signal that ends this process
/// ends the looks first.
agent::DoctorFacts look_at_node(const DoctorOrder& order, const Environment& environment);

}  // namespace muster::launcher
