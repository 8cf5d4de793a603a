// Which boot of which kernel this is: two processes with the same one can meet in memory, and a pid means something.
#pragma once

#include <string>

namespace muster {

/// Of /proc/sys/kernel/random/boot_id; "unknown" where it cannot be read.
std::string boot_id();

}  // namespace muster
