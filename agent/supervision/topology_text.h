// Parses the output of muster-topology (agent/probes/topology/topology_main.cpp). Pure.
#pragma once

#include <string_view>

#include "agent/supervision/placement.h"

namespace muster::agent {

/// The error names the first line that is no line of muster-topology's, or says that there was none.
Result<Topology> read_topology(std::string_view text);

}  // namespace muster::agent
