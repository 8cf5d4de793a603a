// The GPU that is tested: memory, one stream, and waits with a deadline.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/nccl/libraries/cuda_table.h"
#include "worker_runtime/nccl/libraries/kernel_image.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::runtime {

class TestDevice;

/// Memory of the GPU. Freed with this object.
class DeviceMemory {
  public:
    DeviceMemory() = default;
    DeviceMemory(const TestDevice& device, void* memory) : device_(&device), memory_(memory) {}
    ~DeviceMemory();
    DeviceMemory(DeviceMemory&& other) noexcept;
    DeviceMemory& operator=(DeviceMemory&& other) noexcept;
    template <class T>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(memory_);
    }

  private:
    const TestDevice* device_ = nullptr;
    void* memory_ = nullptr;
};

/// One thread uses it. Errors: limit_exceeded if the GPU has too little memory, unsupported without CUDA or a kernel
/// for it, timed_out, and io in CUDA's words.
class TestDevice final : public KernelQueue {
  public:
    /// GPU `number` of those that are visible (CUDA_VISIBLE_DEVICES). It lives until the process ends.
    static Result<std::unique_ptr<TestDevice>> open(int number = 0);

    Result<void> launch(const KernelCall& call) override;
    /// In any direction. Host memory must stay valid until finish().
    Result<void> copy(void* to, const void* from, std::size_t size_bytes);
    /// Returns when all earlier work is complete.
    Result<void> finish();

    [[nodiscard]] Result<DeviceMemory> allocate(std::size_t size_bytes) const;
    /// Locks host memory, so that the GPU copies it by itself.
    Result<void> pin(void* memory, std::size_t size_bytes);
    Result<void> unpin(void* memory);

    /// True if this GPU writes to the other one's memory by itself. Otherwise CUDA copies through the host.
    [[nodiscard]] bool reaches(const TestDevice& other) const;
    /// 0: unknown.
    [[nodiscard]] std::size_t free_bytes() const;
    /// 0: unknown.
    [[nodiscard]] int attribute(cudaDeviceAttr which) const;
    [[nodiscard]] std::string versions() const { return cuda_.versions(); }

  private:
    friend class DeviceMemory;
    TestDevice(CudaTable cuda, int number) : cuda_(std::move(cuda)), number_(number) {}
    [[nodiscard]] Result<void> check(cudaError_t result, const char* what) const;

    CudaTable cuda_;
    int number_;
    KernelImage kernels_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t done_ = nullptr;
};

}  // namespace muster::runtime
