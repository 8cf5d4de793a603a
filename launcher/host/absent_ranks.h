// Options that name local ranks which this node does not have. This is not an error, because nodes with different
// numbers of workers may share a command line. A hint explains the missing output.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/launch_config.h"

namespace muster::launcher {

/// Returns one sentence for each option without effect on this node. The number of workers must be final.
std::vector<std::string> absent_rank_hints(const LaunchConfig& config);

}  // namespace muster::launcher
