// Reads a small file: /proc, a control group, a kernel setting.
#pragma once

#include <cstddef>
#include <string>

namespace muster {

/// All of it; empty where it cannot be read, or is.
std::string read_file(const std::string& path);

/// At most `bytes_max` of a regular file that somebody else wrote: a pipe in its place is not waited for.
std::string read_start_of_file(const std::string& path, std::size_t bytes_max);

}  // namespace muster
