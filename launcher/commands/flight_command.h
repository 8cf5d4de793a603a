// `muster flight DIR`: says from flight records which rank is missing from which collective.
#pragma once

#include <string>
#include <vector>

namespace muster::launcher {

/// `arguments` after "flight": folders and files; folders are searched for *.ring below them. Prints the report to
/// stdout. Exit codes as the launcher's: 0, or 2 with a line on stderr when nothing could be read.
int run_flight(const std::vector<std::string>& arguments);

}  // namespace muster::launcher
