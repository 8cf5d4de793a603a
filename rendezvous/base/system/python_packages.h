// The versions of Python packages in an environment, without starting a Python.
#pragma once

#include <map>
#include <string>

namespace muster {

/// Of the environment at `prefix` (VIRTUAL_ENV, CONDA_PREFIX): versions by package, "torch" -> "2.13.0+cpu", from the
/// names of the folders *.dist-info. Empty if there is none. Reads one directory, which may hang with its disk.
std::map<std::string, std::string> python_packages(const std::string& prefix);

}  // namespace muster
