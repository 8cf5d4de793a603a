// muster doctor: looks for faults of this node before they cost a job. muster doctor explain: what a check means.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// `arguments` are the words after "doctor". The exit codes are those of Nagios' plugins: 0 no finding of level warning
/// or above, 1 warning, 2 critical, 3 could not look. Wrong usage is 3 too: nothing was looked at.
int run_doctor(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
