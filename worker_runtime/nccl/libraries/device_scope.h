// Makes the calling thread use this process's GPU during the lifetime of this object, and restores the previous state:
// CUDA keeps a context for each thread, and a trainer's own calls go to the one that it selected.
//
// The context is restored, not the device's number: in a thread that has never used a GPU, cudaSetDevice() would create
// a context on GPU 0, on every rank.
#pragma once

#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/libraries/cuda_table.h"

namespace muster::runtime {

class DeviceScope {
  public:
    /// `cuda` must outlive the result.
    static Result<DeviceScope> enter(const CudaTable& cuda, int device) {
        DeviceScope scope(cuda);
        MUSTER_TRY(cuda.check(cuda.set_device(device), cat("use GPU ", device)));
        return scope;
    }
    ~DeviceScope() {
        if (cuda_ != nullptr) (void)cuda_->set_current_context(before_);
    }
    DeviceScope(DeviceScope&& other) noexcept : cuda_(std::exchange(other.cuda_, nullptr)), before_(other.before_) {}
    DeviceScope& operator=(DeviceScope&&) = delete;

  private:
    explicit DeviceScope(const CudaTable& cuda) {
        const bool known = cuda.current_context != nullptr && cuda.current_context(&before_) == 0;
        if (known) cuda_ = &cuda;
    }

    const CudaTable* cuda_ = nullptr;  ///< null: nothing to restore
    void* before_ = nullptr;
};

}  // namespace muster::runtime
