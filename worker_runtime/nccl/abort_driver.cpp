#include "worker_runtime/nccl/abort_driver.h"

#include <utility>

#include "rendezvous/base/thread_start.h"

namespace muster::runtime {

AbortDriver::AbortDriver(Duration limit, AbortSteps steps) : steps_(std::move(steps)), abort_(limit) {}

Result<std::unique_ptr<AbortDriver>> AbortDriver::start(Duration limit, AbortSteps steps) {
    std::unique_ptr<AbortDriver> driver(new AbortDriver(limit, std::move(steps)));
    driver->thread_ = MUSTER_TRY(start_thread("muster-nccl-end", [self = driver.get()] { self->run(); }));
    return driver;
}

AbortDriver::~AbortDriver() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    for (auto& step : steps_running_) step.join();
}

Error AbortDriver::fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!failed_.load(std::memory_order_relaxed)) {
        failure_ = error;
        due_ = abort_.failed(error.context, std::chrono::steady_clock::now());
        failed_.store(true, std::memory_order_release);
        changed_.notify_all();
    }
    return failure_;
}

Error AbortDriver::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

void AbortDriver::wait_over() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
        return abort_.phase() == NcclAbortPhase::running ||
               (abort_.phase() == NcclAbortPhase::over && due_ == NcclAbortAction::none);
    });
}

void AbortDriver::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        while (due_ != NcclAbortAction::none) {
            const auto action = due_;
            lock.unlock();
            carry_out(action);
            lock.lock();
            if (due_ == action) due_ = NcclAbortAction::none;
            changed_.notify_all();
        }
        if (stop_) return;
        const auto deadline = abort_.next_deadline();
        const auto woken = [this] { return stop_ || due_ != NcclAbortAction::none; };
        if (!deadline) {
            changed_.wait(lock, woken);
        } else if (!changed_.wait_until(lock, *deadline, woken)) {
            due_ = abort_.tick(std::chrono::steady_clock::now());
        }
    }
}

void AbortDriver::carry_out(NcclAbortAction action) {
    switch (action) {
        case NcclAbortAction::none: return;
        case NcclAbortAction::publish:
            return in_thread(NcclAbortPhase::publishing, [this, why = failure().context] { steps_.publish(why); });
        case NcclAbortAction::settle: return in_thread(NcclAbortPhase::settling, steps_.settle);
        case NcclAbortAction::deregister: return in_thread(NcclAbortPhase::deregistering, steps_.deregister);
        case NcclAbortAction::abort_all: return in_thread(NcclAbortPhase::aborting, steps_.abort_all);
        case NcclAbortAction::release: return in_thread(NcclAbortPhase::releasing, steps_.release);
        case NcclAbortAction::leave: return steps_.leave(failure().context);
    }
}

void AbortDriver::in_thread(NcclAbortPhase phase, std::function<void()> step) {
    auto thread = start_thread("muster-nccl-step", [this, phase, step = std::move(step)] {
        step();
        const std::lock_guard lock(mutex_);
        const auto next = abort_.ended(phase, std::chrono::steady_clock::now());
        if (next != NcclAbortAction::none) due_ = next;
        changed_.notify_all();
    });
    // A process that cannot start a thread cannot abort either; its agent starts it again.
    if (!thread) return steps_.leave(thread.error().context);
    steps_running_.push_back(std::move(*thread));
}

}  // namespace muster::runtime
