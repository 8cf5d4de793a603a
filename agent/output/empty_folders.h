// Removes directories for files that were never written.
#pragma once

#include <string>

namespace muster::agent {

/// Removes `path` and what is below it, as far as it holds no file. Errors are ignored.
void remove_empty_folders(const std::string& path);

}  // namespace muster::agent
