// The kernels for GPUs. clang++ compiles this without CUDA's headers, nvcc with its own.
#if defined(__clang__)
#include <stdlib.h>  // its header of operator new wants malloc, which CUDA's headers would bring
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(threads) __attribute__((launch_bounds(threads)))
#define MUSTER_THREAD __nvvm_read_ptx_sreg_tid_x()
#define MUSTER_BLOCK __nvvm_read_ptx_sreg_ctaid_x()
#define MUSTER_BLOCKS __nvvm_read_ptx_sreg_nctaid_x()
#else
#define MUSTER_THREAD threadIdx.x
#define MUSTER_BLOCK blockIdx.x
#define MUSTER_BLOCKS gridDim.x
#endif

#include "worker_runtime/kernels/kernel_list.h"

namespace muster::kernels {

template <class Kernel>
__device__ inline void carry_out(const Kernel& kernel) {
    __shared__ typename Kernel::Form::Shared shared;
    const std::uint64_t items = item_count(kernel);
    const std::uint32_t phases = count_phases(kernel);
    for (std::uint64_t item = MUSTER_BLOCK; item < items; item += MUSTER_BLOCKS) {
        for (std::uint32_t phase = 0; phase < phases; ++phase) {
            run_phase(kernel, phase, item, MUSTER_THREAD, shared);
            if constexpr (!Kernel::Form::elementwise) __syncthreads();
        }
    }
}

#define MUSTER_DEFINE_KERNEL(name)                                                           \
    extern "C" __global__ void __launch_bounds__(threads) muster_##name(const name kernel) { \
        carry_out(kernel);                                                                   \
    }
MUSTER_KERNELS(MUSTER_DEFINE_KERNEL)

}  // namespace muster::kernels
