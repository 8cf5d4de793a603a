// The functions of CUDA's runtime that the plugin uses. No other part calls CUDA: a stand-in of the tests takes the
// place of the whole library.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "rendezvous/base/error.h"

namespace muster::runtime {

struct CudaTable {
    decltype(&::cudaRuntimeGetVersion) runtime_version = nullptr;
    decltype(&::cudaDriverGetVersion) driver_version = nullptr;
    decltype(&::cudaGetErrorString) error_string = nullptr;
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
    cudaError_t (*allocate)(void**, std::size_t) = nullptr;  // cudaMalloc, which the header also has as a template
    decltype(&::cudaFree) free = nullptr;
    decltype(&::cudaMemcpyAsync) copy = nullptr;
    decltype(&::cudaMemsetAsync) fill = nullptr;
    decltype(&::cudaHostRegister) pin = nullptr;
    decltype(&::cudaHostUnregister) unpin = nullptr;
    decltype(&::cudaDeviceSynchronize) synchronize = nullptr;
    decltype(&::cudaPointerGetAttributes) pointer_attributes = nullptr;
    decltype(&::cudaDeviceGetAttribute) attribute = nullptr;
    decltype(&::cudaLaunchKernel) launch = nullptr;
    // Null in runtimes before 12.8. cudaLibraryLoadData and cudaLibraryGetKernel, whose handles older headers lack.
    cudaError_t (*load_library)(void** library, const void* code, void* jit_options, void** jit_values,
                                unsigned jit_count, void* options, void** values, unsigned count) = nullptr;
    cudaError_t (*get_kernel)(void** kernel, void* library, const char* name) = nullptr;
    std::string path;

    /// Loads the library: `named`, else libcudart of any version since 11. unsupported says what is missing.
    static Result<CudaTable> load(const std::string& named);

    /// Nothing, or "`what`: <CUDA's text>" as unsupported.
    [[nodiscard]] Result<void> check(cudaError_t result, std::string_view what) const;

    /// "CUDA runtime 12.9, driver 13.0".
    [[nodiscard]] std::string versions() const;
};

}  // namespace muster::runtime
