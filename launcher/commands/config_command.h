// muster config check FILE: validates a job's configuration file before a unit starts with it.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// `arguments` are the words after "config". Reports every wrong line, then contradictions, a missing program and a
/// port that this user may not use. Exit codes: 0 valid, 2 invalid or wrong usage, 126 and 127 as the launcher's.
int run_config(const std::vector<std::string>& arguments, Environment environment);

}  // namespace muster::launcher
