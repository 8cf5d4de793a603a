// The functions of CUDA's runtime that the plugin uses. No other part calls CUDA: a stand-in of the tests replaces the
// whole library.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

struct CudaTable {
    decltype(&::cudaRuntimeGetVersion) runtime_version = nullptr;
    decltype(&::cudaDriverGetVersion) driver_version = nullptr;
    decltype(&::cudaGetErrorString) error_string = nullptr;
    decltype(&::cudaGetLastError) last_error = nullptr;
    decltype(&::cudaGetDeviceCount) device_count = nullptr;
    decltype(&::cudaSetDevice) set_device = nullptr;
    decltype(&::cudaDeviceGetPCIBusId) pci_bus_id = nullptr;
    decltype(&::cudaStreamCreateWithFlags) stream_create = nullptr;
    decltype(&::cudaStreamDestroy) stream_destroy = nullptr;
    decltype(&::cudaStreamWaitEvent) stream_wait_event = nullptr;
    decltype(&::cudaEventCreateWithFlags) event_create = nullptr;
    decltype(&::cudaEventDestroy) event_destroy = nullptr;
    decltype(&::cudaEventRecord) event_record = nullptr;
    decltype(&::cudaEventQuery) event_query = nullptr;
    cudaError_t (*allocate)(void**, std::size_t) = nullptr;  // cudaMalloc; the header has a template of that name too
    decltype(&::cudaFree) free = nullptr;
    decltype(&::cudaMemcpyAsync) copy = nullptr;
    decltype(&::cudaMemsetAsync) fill = nullptr;
    decltype(&::cudaHostRegister) pin = nullptr;
    decltype(&::cudaHostUnregister) unpin = nullptr;
    decltype(&::cudaDeviceSynchronize) synchronize = nullptr;
    /// cudaPointerGetAttributes, for is_of_device() only: the size of its result depends on the library's version.
    cudaError_t (*pointer_attributes)(void* facts, const void* memory) = nullptr;
    decltype(&::cudaDeviceGetAttribute) attribute = nullptr;
    decltype(&::cudaLaunchKernel) launch = nullptr;
    decltype(&::cudaMemGetInfo) memory_info = nullptr;
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
