// Checks before a run that enough file descriptors are available.
#pragma once

#include "launcher/config/launch_config.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

/// Raises this process's limit of open files as far as the host allows, and checks that this node's workers have enough
/// descriptors beside the connections of the workers' store (two for each worker of the job's minimum of nodes, as
/// PyTorch up to 2.0 opens them) and of the rendezvous, if they may be here. Without one for its
/// connection an agent or a worker would retry until its timeout. Each node checks the second, because each may get the
/// store in a later round; with the static back end the node with rank 0 does. The error has the numbers and how to
/// raise the limit. Call it after the fork of the guardian, so that workers keep the user's limit, and after
/// resolve_worker_count().
Result<void> check_open_files(const LaunchConfig& config);

}  // namespace muster::launcher
