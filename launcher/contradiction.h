// Options that make sense one by one and not together: a wait that is longer than the one around it, a budget with
// nothing to spend. Found at the start, because at work they show themselves as nodes that give each other up at odd
// times, weeks later.
#pragma once

#include <optional>
#include <string>

#include "launcher/settings.h"

namespace muster::launcher {

/// One sentence that names both options and their values, about the first pair that contradicts itself; after all
/// rules have been applied. A default is never blamed: where only one of a pair was given, the other gives way or the
/// pair is let be, as torchrun does.
std::optional<std::string> contradiction(const Settings& settings);

}  // namespace muster::launcher
