// The versions and settings that this node sends with Hello. The daemon names what differs between the nodes of a
// round.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::launcher {

/// muster, the kernel, the NVIDIA driver and its GPUs, PyTorch, CUDA and NCCL of the Python that workers use, and the
/// variables of NCCL that must be equal on all nodes. A part that this node does not have is left out. `root` goes
/// before the paths of the kernel's files.
std::vector<native::VersionFact> node_versions(const Environment& environment, const std::string& root = {});

}  // namespace muster::launcher
