// Identifies the boot of this kernel. Processes with the same boot id can share memory and compare pids.
#pragma once

#include <string>

namespace muster {

/// Of /proc/sys/kernel/random/boot_id; "unknown" where it cannot be read.
std::string boot_id();

}  // namespace muster
