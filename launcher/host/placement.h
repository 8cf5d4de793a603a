// --numa-binding and --omp on this machine: asks for its CPUs (muster-topology) and its GPUs (NVML, sysfs), and has the
// pure part (agent/supervision/placement.h) decide. Nothing is run or loaded unless one of the options asks for it.
#pragma once

#include <string>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

/// The NUMA node of a PCI device, below `devices`; nothing where the machine does not tell (-1: no such nodes, or a
/// virtual machine that hides them).
std::optional<std::uint32_t> numa_node_of(const std::string& pci_address,
                                          const std::string& devices = "/sys/bus/pci/devices");

/// Fills in config.placements and config.threads; after resolve_worker_count, and as that after the guardian has been
/// forked. The error is one line for the user. Waits at most 10 s for a machine that is slow to tell.
Result<void> resolve_placement(LaunchConfig& config, const Environment& environment);

}  // namespace muster::launcher
