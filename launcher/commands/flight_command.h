// `muster flight DIR`: reports from flight records which rank is missing from which collective.
#pragma once

#include <string>
#include <vector>

namespace muster::launcher {

/// `arguments` are the words after "flight": files, and folders that are searched recursively for *.ring. Prints the
/// report to stdout. Exit codes: 0, or 2 with a line on stderr if nothing could be read.
int run_flight(const std::vector<std::string>& arguments);

}  // namespace muster::launcher
