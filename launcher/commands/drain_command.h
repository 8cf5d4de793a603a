// muster drain NODE [--job ID] [--rdzv-endpoint HOST[:PORT],...]: lets one node of a running job go, through an agent
// of the job on this host, or through its daemon with the job's secret.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// `arguments` follow "drain". Prints what was done, or to stderr why not, with the jobs or nodes that there are, and
/// returns the exit code: 0 done, 1 not done, 2 usage.
int run_drain(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
