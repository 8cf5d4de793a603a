// Options that name local ranks which this node does not have. Nodes may differ in their number of workers and share
// one command line, so that is no error; but whoever sees no output wants to know why.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/launch_config.h"

namespace muster::launcher {

/// A sentence for each option of which nothing comes on this node, once the number of workers is known.
std::vector<std::string> absent_rank_hints(const LaunchConfig& config);

}  // namespace muster::launcher
