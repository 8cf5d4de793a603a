// Replaces the generated code if the build finds no compiler for GPUs (Kernels.cmake).
#include "worker_runtime/nccl/libraries/kernel_code.h"

namespace muster::runtime {

std::span<const KernelCode> kernel_codes() {
    return {};
}

int ptx_capability() {
    return 0;
}

}  // namespace muster::runtime
