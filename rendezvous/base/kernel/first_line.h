// The small files of /proc and /sys, which say one thing.
#pragma once

#include <string>

namespace muster {

/// Without its end; empty where the file cannot be read.
std::string first_line(const std::string& path);

}  // namespace muster
