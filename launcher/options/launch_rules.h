// The rules that span several options: standalone, endpoints, the static back end, timeouts. Pure.
#pragma once

#include <optional>
#include <string>

#include "launcher/config/environment.h"
#include "launcher/options/settings.h"

namespace muster::launcher {

/// Completes settings.config, or returns one line (without the program's name) with the conflicting options and the
/// correction.
std::optional<std::string> apply_launch_rules(Settings& settings, const Environment& environment);

}  // namespace muster::launcher
