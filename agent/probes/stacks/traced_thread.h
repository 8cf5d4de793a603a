// Holds one thread of another process during the lifetime of this object, with PTRACE_SEIZE. It sends no signal: a
// stopped process stays stopped, and a running one continues, also if this program is killed meanwhile.
#pragma once

#include <sys/types.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

class TracedThread {
  public:
    /// The errors: Errc::unreachable where the kernel refuses (the text says which settings do), and
    /// timed_out where the thread is in a system call that nothing interrupts; the kernel then lets go of it when this
    /// process ends.
    static Result<TracedThread> hold(pid_t thread, Duration limit);
    ~TracedThread();
    TracedThread(TracedThread&& other) noexcept;
    TracedThread& operator=(TracedThread&&) = delete;

  private:
    TracedThread(pid_t thread, int signal) : thread_(thread), signal_(signal) {}
    pid_t thread_;  // 0: moved from
    int signal_;    // was about to be delivered: passed on when it is let go
};

}  // namespace muster::agent
