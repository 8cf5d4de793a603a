// `muster status [JOB]`: what the jobs of a daemon do, and what is wrong.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// Exit codes: 0; 1 the daemon does not answer, or has no such job; 2 usage.
int run_status(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
