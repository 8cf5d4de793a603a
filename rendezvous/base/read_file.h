// A small file as it is at this moment: /proc, a control group, a setting of the kernel.
#pragma once

#include <string>

namespace muster {

/// All of it; empty where it cannot be read, or is.
std::string read_file(const std::string& path);

}  // namespace muster
