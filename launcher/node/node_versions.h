// The versions and settings that this node sends with Hello. The daemon names what differs between the nodes of a
// round.
#pragma once

#include <vector>

#include "launcher/config/environment.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::launcher {

/// muster, the kernel, the NVIDIA driver, PyTorch and NCCL of the active Python environment, and the variables of NCCL
/// that must be equal on all nodes. A part that this node does not have is left out.
std::vector<native::VersionFact> node_versions(const Environment& environment);

}  // namespace muster::launcher
