// The state of CUDA and NCCL in this process: both libraries, its GPU, and all live communicators, because a failure of
// one ends all of them (core/nccl_abort.h has the reason).
//
// After a failure the object only waits for the abort. A communicator of the next round gets a new object.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/abort_driver.h"
#include "worker_runtime/nccl/libraries/cuda_table.h"
#include "worker_runtime/nccl/libraries/device_scope.h"
#include "worker_runtime/nccl/libraries/kernel_image.h"
#include "worker_runtime/nccl/libraries/nccl_table.h"
#include "worker_runtime/nccl/plugin.h"
#include "worker_runtime/transport/fd_watch.h"

namespace muster::runtime {

class NcclComm;

/// The use of device memory.
enum class MemoryUse {
    staging,  ///< Allocated by cudaMalloc.
    buckets,  ///< Allocated by ncclMemAlloc, so that it can be registered; by cudaMalloc if the library has no
              ///< registration.
};

class NcclProcess {
  public:
    /// Returns the object in use, or a new one. unsupported: a library is missing or too old, or no GPU is usable.
    static Result<std::shared_ptr<NcclProcess>> open(const NcclTerms& terms);
    /// Implements PinHostMemory, for the GPU of the object in use.
    static Result<std::unique_ptr<HostPin>> pin(void* memory, std::size_t size_bytes);
    /// No user of it may exist any more.
    ~NcclProcess();
    NcclProcess& operator=(NcclProcess&&) = delete;

    [[nodiscard]] const CudaTable& cuda() const { return cuda_; }
    [[nodiscard]] const NcclTable& nccl() const { return nccl_; }
    [[nodiscard]] const NcclTerms& terms() const { return terms_; }
    /// PCI address of the GPU.
    [[nodiscard]] const std::string& device_name() const { return device_name_; }
    /// Describes all versions, the GPU and the user's settings of NCCL, for people.
    [[nodiscard]] std::string description() const;
    [[nodiscard]] FdWatch& watch() const { return *watch_; }

    // These functions are thread-safe.

    /// CUDA keeps the current device per thread: every call of CUDA or NCCL needs this object.
    [[nodiscard]] Result<DeviceScope> use_device() const;

    /// The kernels of muster; loaded at the first call.
    const Result<KernelImage>& kernels();
    /// Launches a kernel; kernels() must have succeeded.
    Result<void> launch(const KernelCall& call, cudaStream_t stream);

    /// Adds a communicator. After a failure it is not added, and no call on it reaches NCCL.
    void add(const std::shared_ptr<NcclComm>& communicator);
    /// Removes a communicator whose NCCL communicator is destroyed or about to be closed.
    void remove(const std::shared_ptr<NcclComm>& communicator);

    /// `tell` is called in the abort's first step, with the failure. Returns a number for remove_failure_listener().
    std::uint64_t add_failure_listener(std::function<void(const std::string& why)> tell);
    void remove_failure_listener(std::uint64_t number);

    /// Ends all communicators of the process; returns the first failure.
    Error fail(const Error& error) { return driver_->fail(error); }
    [[nodiscard]] bool failed() const { return driver_->failed(); }
    [[nodiscard]] Error failure() const { return driver_->failure(); }
    void wait_over() { driver_->wait_over(); }

    /// Allocates uninitialised device memory. limit_exceeded: the GPU has too little.
    Result<void*> allocate(std::size_t size_bytes, MemoryUse use);
    /// Returns when the GPU is idle, also without work of other libraries; at once during an abort.
    void wait_until_idle();
    /// Frees the memory now, or at the end of an abort in progress: until then a free may wait for a stuck kernel.
    void free(void* memory, MemoryUse use);

  private:
    explicit NcclProcess(NcclTerms terms) : terms_(std::move(terms)) {}
    Result<void> load();
    Result<void> find_device();
    AbortSteps abort_steps();
    void abort_all();
    void abort_together(const std::vector<std::shared_ptr<NcclComm>>& all);
    void release();
    [[nodiscard]] bool is_of_nccl(MemoryUse use) const;
    void wait_for_gpu() const;
    void free_now(void* memory, MemoryUse use) const;
    [[nodiscard]] std::vector<std::shared_ptr<NcclComm>> communicators() const;

    NcclTerms terms_;
    CudaTable cuda_;
    NcclTable nccl_;
    std::string device_name_;
    std::once_flag kernels_loaded_;
    std::optional<Result<KernelImage>> kernels_;
    std::shared_ptr<FdWatch> watch_;
    mutable std::mutex mutex_;
    std::set<std::shared_ptr<NcclComm>> communicators_;
    std::map<std::uint64_t, std::function<void(const std::string&)>> tellers_;
    std::uint64_t next_failure_listener_ = 1;
    std::vector<std::pair<void*, MemoryUse>> held_;  ///< freed in release()
    bool released_ = false;
    std::unique_ptr<AbortDriver> driver_;
};

}  // namespace muster::runtime
