// Our kernels as GPU code, embedded into the plugin by the build.
#pragma once

#include <span>

namespace muster::runtime {

struct KernelCode {
    int major = 0;  ///< the compute capability that it is machine code for; 0: PTX, which the driver compiles
    int minor = 0;
    const void* data = nullptr;  ///< PTX ends with a zero
};

/// The PTX last. Empty where the build found no compiler for GPUs.
std::span<const KernelCode> kernel_codes();

/// The capability that the PTX asks for at least, as major x 10 + minor.
int ptx_capability();

}  // namespace muster::runtime
