// The looks of muster-facts. Each prints its records and may block; the caller sets the deadline.
#pragma once

#include <string>

namespace muster::agent {

/// This host's name, its addresses, and whether the kernel has a route to each.
void look_at_names();
/// Interfaces, members of bonds, the kernel's settings of TCP.
void look_at_network();
/// Limits of this process, memory, /dev/shm, versions.
void look_at_system();
/// GPUs and NICs on the PCI bus, what lies above them, RDMA ports.
void look_at_pci();
/// GPU errors since the boot.
void look_at_kernel_log();
/// Free space of a directory, and the time of writing 1 MiB there. `if_there`: prints nothing if it does not exist.
void look_at_disk(const std::string& path, bool if_there);

}  // namespace muster::agent
