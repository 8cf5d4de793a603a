// Finds options that are valid alone and contradict each other: a wait longer than the one around it, a budget with no
// limit to apply to. It runs at the start. Otherwise such options show weeks later, as nodes that evict each other.
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
