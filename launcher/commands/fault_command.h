// muster fault KIND TARGET [OPTIONS]: injects a fault into one part of a running job.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// `arguments` are the words after "fault". Prints the result to stdout, or the error with the known ranks, nodes or
/// jobs to stderr. Exit codes: 0 done, 1 not done, 2 usage.
int run_fault(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
