// Options that make sense one by one and not together: a wait that is longer than the one around it, a budget with
// nothing to spend. Found at the start, because at work they show themselves as nodes that give each other up at odd
// times, weeks later.
#pragma once

#include <optional>
#include <string>

#include "launcher/options/settings.h"

namespace muster::launcher {

/// Returns one sentence about the first pair of contradicting options: both names, both values, and which is a default.
/// Call it after all rules have been applied. Combinations that torchrun accepts (a short join_timeout beside defaults)
/// are accepted.
std::optional<std::string> contradiction(const Settings& settings);

}  // namespace muster::launcher
