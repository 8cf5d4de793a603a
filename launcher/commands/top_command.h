// `muster top [JOB]`: a screen with the jobs of a daemon and what is wrong, for a person who looks around.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// Exit codes: 0; 1 the daemon has no such job, or, without a screen, does not answer; 2 usage; 128 and the number of
/// the signal that ended it.
int run_top(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
