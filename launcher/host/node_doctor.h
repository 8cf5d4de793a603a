// Looks at this node for a caller that has nothing else to do meanwhile.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "agent/doctor/check_table.h"
#include "agent/evidence/node_looks.h"
#include "launcher/config/environment.h"

namespace muster::launcher {

/// What muster doctor looks at and what it leaves out.
struct DoctorOrder {
    std::vector<std::string> directories;  ///< Absolute paths.
    std::set<std::string> skip;
    agent::DoctorLimits limits;
    agent::GpuTests gpu_tests = agent::GpuTests::skipped;
};

/// Blocks until every look has ended or met its deadline (agent/evidence/node_looks.h). A signal that ends this process
/// ends the looks first.
agent::DoctorFacts look_at_node(const DoctorOrder& order, const Environment& environment);

}  // namespace muster::launcher
