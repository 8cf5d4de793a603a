// Variables named MUSTER_* that nothing reads: mostly an option's, misspelt, which would be ignored without a word.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// One warning for each variable that is neither of `options` ("MUSTER_NNODES") nor one that muster, its runtime, its
/// tests or its scripts read or set; with the nearest known name. Values are not quoted: one may be a secret.
std::vector<std::string> unknown_variables(const Environment& environment, const std::vector<std::string>& options);

}  // namespace muster::launcher
