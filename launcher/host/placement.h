// --numa-binding and --omp on this machine: reads its CPUs (muster-topology) and GPUs (muster-gpus, sysfs); the pure
// part (agent/supervision/placement.h) decides. Runs nothing unless one of the options is used.
#pragma once

#include <string>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

/// The NUMA node of a PCI device, from sysfs at `devices`. Nothing if it is unknown (-1: no NUMA nodes, or a virtual
/// machine hides them).
std::optional<std::uint32_t> numa_node_of(const std::string& pci_address,
                                          const std::string& devices = "/sys/bus/pci/devices");

/// Sets config.placements and config.threads. Call it after resolve_worker_count and the fork of the guardian. The
/// error is one line for the user. Blocks for at most 70 s.
Result<void> resolve_placement(LaunchConfig& config, const Environment& environment);

}  // namespace muster::launcher
