// How much memory may still be taken.
#pragma once

#include <cstddef>
#include <string>

namespace muster::runtime {

/// Bytes that this process may still take without the host or its cgroup (version 1 or 2) running out; an estimate,
/// which counts page cache as free. `root` is where /proc and /sys are looked for, for tests.
std::size_t available_memory_bytes(const std::string& root = "");

}  // namespace muster::runtime
