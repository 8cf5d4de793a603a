// `muster checkpoint`: what lies in a checkpoint directory, is it whole, and a copy of it for other programs.
#pragma once

#include <string>
#include <vector>

namespace muster::launcher {

/// `arguments` after "checkpoint". Prints to stdout, and what is wrong to stderr. Exit codes: 0, the newest checkpoint
/// is whole, or was exported; 1, it is not; 2, wrong usage.
int run_checkpoint(const std::vector<std::string>& arguments);

}  // namespace muster::launcher
