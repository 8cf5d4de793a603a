#include "worker_runtime/nccl/nccl_queue.h"

#include <utility>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/nccl/pace.h"

namespace muster::runtime {

Result<std::unique_ptr<NcclQueue>> NcclQueue::make(std::shared_ptr<NcclProcess> process) {
    std::unique_ptr<NcclQueue> queue(new NcclQueue(std::move(process)));
    const auto& cuda = queue->process_->cuda();
    const auto used = MUSTER_TRY(queue->process_->use_device());
    MUSTER_TRY(cuda.check(cuda.stream_create(&queue->stream_, cudaStreamNonBlocking), "make a CUDA stream"));
    return queue;
}

NcclQueue::~NcclQueue() {
    const auto& cuda = process_->cuda();
    const auto used = process_->use_device();
    if (!used) return;
    for (auto* const event : marks_) cuda.event_destroy(event);
    if (done_) cuda.event_destroy(done_);
    if (stream_) cuda.stream_destroy(stream_);
}

Result<void> NcclQueue::make_event(cudaEvent_t& event) const {
    const auto& cuda = process_->cuda();
    return cuda.check(cuda.event_create(&event, cudaEventDisableTiming), "make a CUDA event");
}

Result<void> NcclQueue::has_kernels() {
    const auto& kernels = process_->kernels();
    return kernels ? Result<void>() : Result<void>(kernels.error());
}

Result<void> NcclQueue::launch(const KernelCall& call) {
    return process_->launch(call, stream_);
}

Result<void> NcclQueue::wait_for(void* event) {
    const auto& cuda = process_->cuda();
    const auto used = MUSTER_TRY(process_->use_device());
    return cuda.check(cuda.stream_wait_event(stream_, static_cast<cudaEvent_t>(event), 0),
                      "wait for the caller's event");
}

Result<void> NcclQueue::copy(void* to, const void* from, std::size_t size_bytes) {
    const auto& cuda = process_->cuda();
    const auto used = MUSTER_TRY(process_->use_device());
    return cuda.check(cuda.copy(to, from, size_bytes, cudaMemcpyDefault, stream_), "copy between host and GPU");
}

Result<void> NcclQueue::fill_zero(void* memory, std::size_t size_bytes) {
    const auto& cuda = process_->cuda();
    const auto used = MUSTER_TRY(process_->use_device());
    return cuda.check(cuda.fill(memory, 0, size_bytes, stream_), "zero memory of the GPU");
}

Result<void*> NcclQueue::mark(std::string_view what, std::size_t number) {
    const auto& cuda = process_->cuda();
    const auto used = MUSTER_TRY(process_->use_device());
    const std::lock_guard lock(marks_mutex_);
    while (marks_.size() <= number) {
        cudaEvent_t event = nullptr;
        MUSTER_TRY(make_event(event));
        marks_.push_back(event);
    }
    MUSTER_TRY(cuda.check(cuda.event_record(marks_[number], stream_), what));
    return static_cast<void*>(marks_[number]);
}

Result<void> NcclQueue::finish(Duration limit) {
    const auto& cuda = process_->cuda();
    const auto used = MUSTER_TRY(process_->use_device());
    if (!done_) MUSTER_TRY(make_event(done_));
    MUSTER_TRY(cuda.check(cuda.event_record(done_, stream_), "record a CUDA event"));
    const Instant deadline = std::chrono::steady_clock::now() + limit;
    Pace pace(WaitMode::eager);
    for (;;) {
        const auto state = cuda.event_query(done_);
        if (state != cudaErrorNotReady) return cuda.check(state, "work of the GPU");
        if (process_->failed()) return process_->failure();
        if (std::chrono::steady_clock::now() >= deadline) {
            return Error{Errc::timed_out, cat("the GPU has not finished the work before the caller's events within ",
                                              describe(std::chrono::round<std::chrono::milliseconds>(limit)))};
        }
        pace.rest();
    }
}

Result<void> NcclQueue::settle() {
    const auto& cuda = process_->cuda();
    const auto used = MUSTER_TRY(process_->use_device());
    return cuda.check(cuda.synchronize(), "wait for the GPU");
}

}  // namespace muster::runtime
