// Executes core/nccl_abort: each step in its own thread, so that a hanging step blocks only itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/nccl/core/nccl_abort.h"

namespace muster::runtime {

/// The implementations of core/nccl_abort's actions. Each is called once at most.
struct AbortSteps {
    std::function<void(const std::string& why)> publish;
    std::function<void()> settle;
    std::function<void()> deregister;
    std::function<void()> abort_all;
    std::function<void()> release;
    std::function<void(const std::string& why)> leave;  ///< does not return
};

class AbortDriver {
  public:
    /// Starts the thread now, because a thread may not be available after a failure.
    static Result<std::unique_ptr<AbortDriver>> start(Duration limit, AbortSteps steps);
    /// Must not run during an abort: call wait_over() first.
    ~AbortDriver();
    AbortDriver& operator=(AbortDriver&&) = delete;

    // These functions are thread-safe.

    /// Begins the abort, unless something has failed before. Returns the first failure.
    Error fail(const Error& error);
    [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
    [[nodiscard]] Error failure() const;
    /// Returns when the abort is over, which its limit guarantees (or the process exits); at once without a failure.
    void wait_over();

  private:
    AbortDriver(Duration limit, AbortSteps steps);
    void run();
    void carry_out(NcclAbortAction action);
    void in_thread(NcclAbortPhase phase, std::function<void()> step);

    AbortSteps steps_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    NcclAbort abort_;
    NcclAbortAction due_ = NcclAbortAction::none;
    Error failure_{};
    std::atomic<bool> failed_ = false;
    bool stop_ = false;
    std::vector<std::thread> steps_running_;
    std::thread thread_;
};

}  // namespace muster::runtime
