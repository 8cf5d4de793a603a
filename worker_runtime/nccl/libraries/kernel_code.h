// Our kernels as GPU code, embedded into the plugin by the build.
#pragma once

#include <span>

namespace muster::runtime {

struct KernelCode {
    int major = 0;  ///< compute capability of the machine code; 0: PTX, which the driver compiles
    int minor = 0;
    const void* data = nullptr;  ///< PTX is null-terminated
};

/// All codes, PTX last. Empty if the build found no compiler for GPUs.
std::span<const KernelCode> kernel_codes();

/// The minimum compute capability of the PTX, as major x 10 + minor.
int ptx_capability();

}  // namespace muster::runtime
