// The functions of CUDA's runtime that the plugin uses. No other part calls CUDA: a stand-in of the tests replaces the
// whole library.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

/// The functions whose types the header has, by the names in the table: every runtime since 11 has them.
// clang-format off
#define MUSTER_CUDA_FUNCTIONS(x) \
    x(runtime_version, cudaRuntimeGetVersion) x(driver_version, cudaDriverGetVersion) \
    x(error_string, cudaGetErrorString) x(last_error, cudaGetLastError) x(device_count, cudaGetDeviceCount) \
    x(set_device, cudaSetDevice) x(pci_bus_id, cudaDeviceGetPCIBusId) x(stream_create, cudaStreamCreateWithFlags) \
    x(stream_destroy, cudaStreamDestroy) x(stream_wait_event, cudaStreamWaitEvent) \
    x(event_create, cudaEventCreateWithFlags) x(event_destroy, cudaEventDestroy) x(event_record, cudaEventRecord) \
    x(event_query, cudaEventQuery) x(free, cudaFree) x(copy, cudaMemcpyAsync) x(fill, cudaMemsetAsync) \
    x(pin, cudaHostRegister) x(unpin, cudaHostUnregister) x(synchronize, cudaDeviceSynchronize) \
    x(attribute, cudaDeviceGetAttribute) x(launch, cudaLaunchKernel) x(memory_info, cudaMemGetInfo)
// clang-format on

struct CudaTable {
#define MUSTER_MEMBER(member, function) decltype(&::function) member = nullptr;
    MUSTER_CUDA_FUNCTIONS(MUSTER_MEMBER)
#undef MUSTER_MEMBER
    cudaError_t (*allocate)(void**, std::size_t) = nullptr;  // cudaMalloc; the header has a template of that name too
    /// cudaPointerGetAttributes, for is_of_device() only: the size of its result depends on the library's version.
    cudaError_t (*pointer_attributes)(void* facts, const void* memory) = nullptr;
    // Copies between GPUs without the host; null in a stand-in that lacks them.
    decltype(&::cudaDeviceCanAccessPeer) can_reach = nullptr;
    decltype(&::cudaDeviceEnablePeerAccess) allow_reach = nullptr;
    // cudaLibraryLoadData and cudaLibraryGetKernel, whose handles older headers lack; null in runtimes before 12.8.
    cudaError_t (*load_library)(void** library, const void* code, void* jit_options, void** jit_values,
                                unsigned jit_count, void* options, void** values, unsigned count) = nullptr;
    cudaError_t (*get_kernel)(void** kernel, void* library, const char* name) = nullptr;
    // The driver's cuCtxGetCurrent and cuCtxSetCurrent; null without a driver, and so without a GPU.
    int (*current_context)(void** context) = nullptr;
    int (*set_current_context)(void* context) = nullptr;
    std::string path;

    /// Loads the library `named`, else libcudart of any version since 11. unsupported names what is missing.
    static Result<CudaTable> load(const std::string& named);
    /// Loads the first of these for which the driver is new enough; if there is none, the first that can be loaded.
    static Result<CudaTable> load_first(const std::vector<std::string>& names);

    /// Returns an error "`what`: <CUDA's text>" (unsupported) if `result` is one. It then clears the thread's last
    /// error, which the caller's own code would otherwise attribute to itself.
    [[nodiscard]] Result<void> check(cudaError_t result, std::string_view what) const;

    /// True for device memory and managed memory. The thread must use the device: CUDA creates a context for this query
    /// too.
    [[nodiscard]] bool is_of_device(const void* memory) const;

    /// Returns a text such as "CUDA runtime 12.9, driver 13.0".
    [[nodiscard]] std::string versions() const;
};

}  // namespace muster::runtime
