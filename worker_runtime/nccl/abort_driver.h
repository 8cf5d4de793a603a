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

/// What core/nccl_abort's actions mean. None of them is called twice.
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
    /// Its thread runs from now on, so that none has to be found when something has failed.
    static Result<std::unique_ptr<AbortDriver>> start(Duration limit, AbortSteps steps);
    /// Not while an abort is going on: wait_over() first.
    ~AbortDriver();
    AbortDriver(const AbortDriver&) = delete;
    AbortDriver& operator=(const AbortDriver&) = delete;

    // All from any thread.

    /// Begins the abort, unless something has failed before; the first failure is returned.
    Error fail(const Error& error);
    [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
    [[nodiscard]] Error failure() const;
    /// Returns when the abort is over, which its limit guarantees (or the process leaves). Nothing has failed: at once.
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
