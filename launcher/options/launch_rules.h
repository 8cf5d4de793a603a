// The rules that span several options: standalone, endpoints, the static back end, time-outs. Pure.
#pragma once

#include <optional>
#include <string>

#include "launcher/config/environment.h"
#include "launcher/options/settings.h"

namespace muster::launcher {

/// Completes settings.config, or says in one line (without the program's name) which options do not go together and
/// what to write instead.
std::optional<std::string> apply_launch_rules(Settings& settings, const Environment& environment);

}  // namespace muster::launcher
