// How much memory may still be taken.
#pragma once

#include <cstddef>

namespace muster::runtime {

/// Bytes that this process may still take without the host or its cgroup running out; an estimate.
std::size_t available_memory_bytes();

}  // namespace muster::runtime
