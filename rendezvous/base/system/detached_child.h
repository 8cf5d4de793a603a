// A detached process for work that must continue while this process is suspended, or whose memory must not count as
// this process's.
#pragma once

#include <functional>

#include "rendezvous/base/error.h"

namespace muster {

/// Runs `work` in a grandchild, in a session of its own, with no descriptor open but `kept`, and returns at once (an
/// intermediate child is waited for, about a millisecond). This process has threads, so `work` may only make system
/// calls: no memory, no locks, no exceptions. The error says what the kernel refused.
Result<void> run_detached(int kept, const std::function<void()>& work);

/// For use in there. Waits for `ms` milliseconds, or for the end of the process that the pidfd stands for: false then.
bool wait_beside(int process, int ms);

}  // namespace muster
