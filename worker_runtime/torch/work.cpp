#include "worker_runtime/torch/work.h"

#include <ATen/core/jit_type.h>

#include <utility>

namespace muster::torch_backend {

Graveyard& Graveyard::of_process() {
    static auto& all = *new Graveyard;
    return all;
}

void Graveyard::bury(std::vector<at::Tensor> tensors, c10::intrusive_ptr<c10d::Work> work) {
    const std::lock_guard lock(mutex_);
    graves_.push_back({std::move(tensors), std::move(work)});
}

void Graveyard::empty() {
    std::vector<Grave> graves;
    const std::lock_guard lock(mutex_);
    graves.swap(graves_);
    // Destroyed after the lock is released: a tensor's end may run any code.
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
