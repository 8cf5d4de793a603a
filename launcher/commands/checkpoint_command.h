// `muster checkpoint`: lists, verifies and exports the checkpoints of a directory.
#pragma once

#include <string>
#include <vector>

namespace muster::launcher {

/// `arguments` are the words after "checkpoint". Prints to stdout, errors to stderr. Exit codes: 0 if the newest
/// checkpoint is complete or was exported, 1 if not, 2 for wrong usage.
int run_checkpoint(const std::vector<std::string>& arguments);

}  // namespace muster::launcher
