// muster fault KIND TARGET [OPTIONS]: rehearses the loss of one part of a running job.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// `arguments` follow "fault". Prints what was done, or to stderr why not, with the ranks, nodes or jobs that there
/// are, and returns the exit code: 0 done, 1 not done, 2 usage.
int run_fault(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
