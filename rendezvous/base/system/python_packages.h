// The versions of Python packages in an environment, without starting a Python.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace muster {

/// Of the environment at `prefix` (VIRTUAL_ENV, CONDA_PREFIX): versions by package, "torch" -> "2.13.0+cpu", from the
/// names of the folders *.dist-info. Empty if there is none. Reads a few directories, which may hang with their disk.
std::map<std::string, std::string> python_packages(const std::string& prefix);

/// The prefix of the first python3 in `path` (PATH): /usr/local of /usr/local/bin/python3. Empty: there is none.
std::string python_prefix(std::string_view path);

}  // namespace muster
