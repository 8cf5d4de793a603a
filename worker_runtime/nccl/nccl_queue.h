// A stream: that of a communicator's collectives, or another one for the engine's own work on device memory.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "worker_runtime/nccl/nccl_process.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::runtime {

class NcclQueue final : public DeviceQueue {
  public:
    static Result<std::unique_ptr<NcclQueue>> make(std::shared_ptr<NcclProcess> process);
    ~NcclQueue() override;
    NcclQueue& operator=(NcclQueue&&) = delete;

    [[nodiscard]] cudaStream_t stream() const { return stream_; }
    Result<void> has_kernels() override;
    Result<void> launch(const KernelCall& call) override;
    Result<void> wait_for(void* event) override;
    Result<void> copy(void* to, const void* from, std::size_t size_bytes) override;
    Result<void> fill_zero(void* memory, std::size_t size_bytes) override;
    Result<void*> mark(std::size_t number) override { return mark("record a CUDA event", number); }
    /// The same; `what` is the context of an error.
    Result<void*> mark(std::string_view what, std::size_t number);
    Result<void> finish(Duration limit) override;
    Result<void> settle() override;
    /// The event of a mark that was made.
    [[nodiscard]] cudaEvent_t event(std::size_t number) const { return marks_[number]; }

  private:
    explicit NcclQueue(std::shared_ptr<NcclProcess> process) : process_(std::move(process)) {}
    Result<void> make_event(cudaEvent_t& event) const;

    const std::shared_ptr<NcclProcess> process_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t done_ = nullptr;
    std::mutex marks_mutex_;
    std::vector<cudaEvent_t> marks_;
};

}  // namespace muster::runtime
