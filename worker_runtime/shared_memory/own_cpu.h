// The CPU on which a rank runs a collective, where ranks leave no CPU idle.
//
// If no CPU is idle, the scheduler places a woken thread on the CPU of the one that wakes it. Ranks wake each other at
// each step, so they gather on one CPU, take turns there, and stay. Measured with 2 ranks on 2 cores beside other work
// of lower priority: an all_reduce of 4 KiB takes 124 us and not 9.5 us, one of 25 MiB 9 ms and not 2.6 ms in memory
// that is copied, 2.3 to 3.4 ms and not 1.2 to 1.8 ms in place.
#pragma once

#include <sched.h>

namespace muster::runtime {

/// From bind() on, and while it lives, the calling thread runs on one CPU of those where it may: that of `rank`.
class OwnCpu {
  public:
    OwnCpu(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
    ~OwnCpu();
    OwnCpu(const OwnCpu&) = delete;
    OwnCpu& operator=(const OwnCpu&) = delete;

    /// Does nothing a second time, and if the ranks are fewer than these CPUs, because then there are idle ones. Where
    /// the kernel refuses, the thread runs anywhere.
    void bind();

  private:
    const int rank_;
    const int ranks_;
    cpu_set_t before_;
    bool is_bound_ = false;
};

}  // namespace muster::runtime
