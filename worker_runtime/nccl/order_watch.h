// A thread that periodically compares this rank's operations with its neighbours' (NcclStatusBoard::compare). It is
// separate because the store may block it, and the thread that watches for ends of processes must not be blocked.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/nccl/nccl_status_board.h"

namespace muster::runtime {

class OrderWatch {
  public:
    /// Compares every `interval`. At the first error it calls `fail` and ends.
    static Result<std::unique_ptr<OrderWatch>> start(std::shared_ptr<NcclStatusBoard> news, Duration interval,
                                                     std::function<void(const Error&)> fail);
    /// Waits for the thread. Must not be called from `fail`.
    ~OrderWatch();
    OrderWatch& operator=(OrderWatch&&) = delete;

  private:
    OrderWatch() = default;

    std::mutex mutex_;
    std::condition_variable changed_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace muster::runtime
