// muster logs DIR: the log files of all workers as one stream.
#pragma once

#include <string>
#include <vector>

namespace muster::launcher {

/// `arguments` are the words after "logs". Prints lines until the files end, or with --follow until a signal comes.
/// Exit code 0, also when the reader of stdout has gone; `usage` for what is wrong with the words or the folder.
int run_logs(const std::vector<std::string>& arguments);

}  // namespace muster::launcher
