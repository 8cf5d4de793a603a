// Reads the first line of a small file of /proc or /sys.
#pragma once

#include <string>

namespace muster {

/// Without its end; empty where the file cannot be read.
std::string first_line(const std::string& path);

}  // namespace muster
