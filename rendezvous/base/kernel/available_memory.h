// The memory that is still available.
#pragma once

#include <cstddef>
#include <string>

namespace muster {

/// An estimate of the bytes that this process can still allocate before the host or its cgroup (version 1 or 2) runs
/// out of memory. It counts page cache as free. `root` replaces / for /proc and /sys in tests.
std::size_t available_memory_bytes(const std::string& root = "");

}  // namespace muster
