// Waiting by polling: NCCL and CUDA events offer no descriptor.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>

#include "rendezvous/base/time.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

class Pace {
  public:
    explicit Pace(WaitMode patience) : spin_(patience == WaitMode::eager ? 50us : 0us) {}

    /// Returns at once for a while, then sleeps 10 us, 20 us ... 100 us. So short operations are detected at once, and
    /// long ones use little processor time.
    void rest() {
        if (std::chrono::steady_clock::now() - began_ < spin_) return;
        const timespec pause{.tv_sec = 0, .tv_nsec = pause_.count()};
        ::nanosleep(&pause, nullptr);
        pause_ = std::min<Duration>(pause_ * 2, 100us);
    }

  private:
    Duration spin_;
    Instant began_ = std::chrono::steady_clock::now();
    Duration pause_ = 10us;
};

}  // namespace muster::runtime
