// Our kernels (worker_runtime/kernels), loaded by CUDA.
#pragma once

#include <cuda_runtime_api.h>
#include <array>

#include "rendezvous/base/error.h"
#include "worker_runtime/kernels/kernel_list.h"
#include "worker_runtime/nccl/libraries/cuda_table.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::runtime {

class KernelImage {
  public:
    /// Loads the machine code for GPU `device`, else the PTX. unsupported: the plugin has neither for it, or CUDA's
    /// runtime is older than 12.8 and cannot load code. The code is never unloaded.
    static Result<KernelImage> load(const CudaTable& cuda, int device);

    /// Launches a kernel on `stream`. The thread must use the device.
    [[nodiscard]] Result<void> launch(const CudaTable& cuda, const KernelCall& call, cudaStream_t stream) const;

  private:
    std::array<const void*, kernels::kernel_count> kernels_{};
};

}  // namespace muster::runtime
