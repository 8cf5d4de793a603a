// muster logs: the log files of all workers as one stream, of a folder or from the agents of a running job.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// `arguments` are the words after "logs". Prints lines until the files end, or with --follow until a signal comes.
/// Exit code 0, also when the reader of stdout has gone; 1 if the lines of a node are missing; `usage` for what is
/// wrong with the words or the folder.
int run_logs(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
