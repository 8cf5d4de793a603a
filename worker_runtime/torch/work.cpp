#include "worker_runtime/torch/work.h"

#include <ATen/core/jit_type.h>

#include <utility>

#include "worker_runtime/torch/lanes.h"
#include "worker_runtime/torch/per_process.h"

namespace muster::torch_backend {

Graveyard& Graveyard::of_process() {
    return of_this_process<Graveyard>();
}

void Graveyard::bury(std::vector<at::Tensor> tensors, c10::intrusive_ptr<c10::ivalue::Future> future) {
    const std::lock_guard lock(mutex_);
    graves_.push_back({std::move(tensors), std::move(future)});
}

void Graveyard::empty() {
    if (Threads::has_this_thread()) return;
    std::vector<Grave> graves;
    const std::lock_guard lock(mutex_);
    graves.swap(graves_);
    // Destroyed after the lock is released: a tensor's end may run any code.
}

BackendWork::~BackendWork() {
    if (Threads::has_this_thread()) Graveyard::of_process().bury(std::move(outputs_), std::move(future_));
}

bool BackendWork::wait(std::chrono::milliseconds timeout) {
    const ReturnToPython returns;
    if (timeout != kNoTimeout) {
        std::unique_lock lock(mutex_);
        TORCH_CHECK(cv_.wait_for(lock, timeout, [this] { return completed_; }), "Operation timed out! ", name_,
                    " has not ended in the ", timeout.count(),
                    " ms of wait(); it goes on until the timeout of the group, whose error names the missing ranks");
    }
    return Work::wait(kNoTimeout);
}

bool BackendWork::has_future() {
    const std::lock_guard lock(future_mutex_);
    return future_ && !future_is_complete_;
}

c10::intrusive_ptr<c10::ivalue::Future> BackendWork::getFuture() {
    bool is_over = false;
    {
        const std::lock_guard lock(future_mutex_);
        if (!future_) future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
        is_over = isCompleted();
    }
    if (is_over) complete_future();
    return future_;
}

/// The operation is over. Either this, or getFuture(), which looks afterwards, completes the future: once.
void BackendWork::complete_future() {
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        const std::lock_guard lock(future_mutex_);
        if (!future_ || future_is_complete_) return;
        future_is_complete_ = true;
        future = future_;
    }
    if (const auto failure = exception())
        future->setError(failure);
    else
        future->markCompleted(c10::IValue(outputs_));
}

}  // namespace muster::torch_backend
