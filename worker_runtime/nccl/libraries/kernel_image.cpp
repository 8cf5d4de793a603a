#include "worker_runtime/nccl/libraries/kernel_image.h"

#include <algorithm>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/libraries/kernel_code.h"

namespace muster::runtime {

namespace {

/// Returns the code for a GPU of that compute capability, best first: machine code of its major number, then PTX.
std::vector<KernelCode> code_for(int major, int minor) {
    std::vector<KernelCode> fitting;
    for (const auto& code : kernel_codes()) {
        const bool fits =
            code.major == 0 ? major * 10 + minor >= ptx_capability() : code.major == major && code.minor <= minor;
        if (fits) fitting.push_back(code);
    }
    std::stable_sort(fitting.begin(), fitting.end(), [](const KernelCode& a, const KernelCode& b) {
        return a.major * 10 + a.minor > b.major * 10 + b.minor;
    });
    return fitting;
}

}  // namespace

Result<KernelImage> KernelImage::load(const CudaTable& cuda, int device) {
    if (kernel_codes().empty()) {
        return Error{Errc::unsupported,
                     "this NCCL plugin was built without GPU kernels: build muster with clang++ or nvcc installed"};
    }
    if (cuda.load_library == nullptr || cuda.get_kernel == nullptr) {
        return Error{Errc::unsupported,
                     cat("muster's GPU kernels need CUDA runtime 12.8 or newer, but ", cuda.path, " is older (",
                         cuda.versions(), "): name a newer one in MUSTER_CUDA_LIBRARY")};
    }
    int major = 0;
    int minor = 0;
    auto asked = cuda.check(cuda.attribute(&major, cudaDevAttrComputeCapabilityMajor, device), "ask what the GPU can");
    if (asked) {
        asked = cuda.check(cuda.attribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "ask what the GPU can");
    }
    if (!asked) return asked.error();
    Error last{Errc::unsupported,
               cat("this NCCL plugin has no kernels for GPUs of compute capability ", major, ".", minor,
                   ", which is older than ", ptx_capability() / 10, ".", ptx_capability() % 10)};
    for (const auto& code : code_for(major, minor)) {
        void* library = nullptr;
        auto loaded = cuda.check(cuda.load_library(&library, code.data, nullptr, nullptr, 0, nullptr, nullptr, 0),
                                 "load the GPU kernels");
        KernelImage image;
        for (int i = 0; loaded && i < kernels::kernel_count; ++i) {
            void* kernel = nullptr;
            loaded = cuda.check(cuda.get_kernel(&kernel, library, kernels::kernel_names[i]),
                                cat("find ", kernels::kernel_names[i], " in the GPU kernels"));
            image.kernels_[static_cast<std::size_t>(i)] = kernel;
        }
        if (loaded) return image;
        last = loaded.error();
    }
    return last;
}

Result<void> KernelImage::launch(const CudaTable& cuda, const KernelCall& call, cudaStream_t stream) const {
    const auto number = static_cast<std::size_t>(call.number);
    void* arguments[] = {const_cast<void*>(call.arguments)};
    return cuda.check(cuda.launch(kernels_[number], dim3(call.blocks), dim3(kernels::threads), arguments, 0, stream),
                      cat("launch ", kernels::kernel_names[number]));
}

}  // namespace muster::runtime
