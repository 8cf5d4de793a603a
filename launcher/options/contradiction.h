// Options that make sense one by one and not together: a wait that is longer than the one around it, a budget with
// nothing to spend. Found at the start, because at work they show themselves as nodes that give each other up at odd
// times, weeks later.
#pragma once

#include <optional>
#include <string>

#include "launcher/options/settings.h"

namespace muster::launcher {

/// One sentence that names both options and their values, and which is a default, about the first pair that contradicts
/// itself; after all rules have been applied. What torchrun would take as it is (a short join_timeout beside defaults)
/// is no contradiction.
std::optional<std::string> contradiction(const Settings& settings);

}  // namespace muster::launcher
