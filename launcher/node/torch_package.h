// --torch-backend and --torch-steps: give the workers muster's Python package, which their PyTorch loads.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

/// Sets MUSTER_TORCH_BACKEND and MUSTER_TORCH_STEPS for the workers, and appends the folder of the package to their
/// PYTHONPATH, unless a folder there has it or pip has installed it for their Python. Without an option it removes its
/// variable. not_found: there is no package, or it is another Python's; invalid_argument: TORCH_DEVICE_BACKEND_AUTOLOAD
/// keeps PyTorch from loading it. The workers would use gloo, or report no steps, without a word.
Result<void> offer_torch_package(const LaunchConfig& config, Environment& environment);

/// muster torch-build: becomes `PYTHON -m muster.torch_build ARGUMENTS`, which compiles the back end for a torch that
/// muster has none for, with the Python and the package that a job would use. Returns an exit code if there is none.
int run_torch_build(const std::vector<std::string>& arguments, Environment environment);

}  // namespace muster::launcher
