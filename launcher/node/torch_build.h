// muster torch-build: compiles PyTorch's back end for a torch that muster has none for.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// Becomes `PYTHON -m muster.torch.build ARGUMENTS` with the Python and the package that a job would use. Returns an
/// exit code if there is none.
int run_torch_build(const std::vector<std::string>& arguments, Environment environment);

}  // namespace muster::launcher
