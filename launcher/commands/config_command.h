// muster config check FILE: says whether a job's configuration file is right, before a unit is started with it.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// `arguments` follow "config". Every line that is wrong is told, then what contradicts itself, a program that is not
/// there, and a port that this user may not have. 0 all is right, 2 it is not, or the usage is not; 126 and 127 as the
/// launcher would end.
int run_config(const std::vector<std::string>& arguments, Environment environment);

}  // namespace muster::launcher
