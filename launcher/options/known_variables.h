// Finds variables named MUSTER_* that nothing reads, mostly misspelt options. Without a warning they are ignored
// silently.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// Returns one warning for each variable that is neither in `options` ("MUSTER_NNODES") nor used by muster, its
/// runtime, its tests or its scripts. The warning names the nearest known variable. It omits the value, which may be a
/// secret.
std::vector<std::string> unknown_variables(const Environment& environment, const std::vector<std::string>& options);

}  // namespace muster::launcher
