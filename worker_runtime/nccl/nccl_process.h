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

/// What device memory is for.
enum class MemoryUse {
    staging,  ///< Allocated by cudaMalloc.
    buckets,  ///< Allocated by ncclMemAlloc, so that it can be registered; by cudaMalloc if the library has no
              ///< registration.
};

class NcclProcess {
  public:
    /// The one that is in use, or a new one. unsupported: a library is missing or too old, or there is no usable GPU.
    static Result<std::shared_ptr<NcclProcess>> open(const NcclTerms& terms);
    /// PinHostMemory, for the GPU of the one that is in use.
    static Result<std::unique_ptr<HostPin>> pin(void* memory, std::size_t size_bytes);
    /// Everything that uses it has gone.
    ~NcclProcess();
    NcclProcess(const NcclProcess&) = delete;
    NcclProcess& operator=(const NcclProcess&) = delete;

    [[nodiscard]] const CudaTable& cuda() const { return cuda_; }
    [[nodiscard]] const NcclTable& nccl() const { return nccl_; }
    [[nodiscard]] const NcclTerms& terms() const { return terms_; }
    /// PCI address of the GPU.
    [[nodiscard]] const std::string& device_name() const { return device_name_; }
    /// All versions, the GPU, and the user's settings of NCCL, for people.
    [[nodiscard]] std::string description() const;
    [[nodiscard]] FdWatch& watch() const { return *watch_; }

    // All from any thread.

    /// CUDA keeps the current device for each thread: whoever calls CUDA or NCCL keeps this meanwhile.
    [[nodiscard]] Result<DeviceScope> use_device() const;

    /// Our kernels, loaded when they are asked for first.
    const Result<KernelImage>& kernels();
    /// One of them, which kernels() has.
    Result<void> launch(const KernelCall& call, cudaStream_t stream);

    /// After a failure nothing is added, and no call on it gets as far as NCCL.
    void add(const std::shared_ptr<NcclComm>& communicator);
    /// Its NCCL communicator is gone, or about to be closed in order.
    void remove(const std::shared_ptr<NcclComm>& communicator);

    /// Called in the abort's first step, with the failure. Returns a number for forget_teller().
    std::uint64_t add_failure_listener(std::function<void(const std::string& why)> tell);
    void remove_failure_listener(std::uint64_t number);

    /// Ends all communicators of the process; returns the first failure.
    Error fail(const Error& error) { return driver_->fail(error); }
    [[nodiscard]] bool failed() const { return driver_->failed(); }
    [[nodiscard]] Error failure() const { return driver_->failure(); }
    void wait_over() { driver_->wait_over(); }

    /// Device memory, with anything in it; limit_exceeded when the GPU has too little.
    Result<void*> allocate(std::size_t size_bytes, MemoryUse use);
    /// Returns when the GPU has nothing to do, whoever gave it work; at once during an abort.
    void wait_until_idle();
    /// Frees it now, or when an abort that is going on is over: in between a free may wait for a stuck kernel.
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
