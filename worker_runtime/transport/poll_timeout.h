// Converts an Instant to the timeout of poll and epoll_wait.
#pragma once

#include <algorithm>
#include <limits>

#include "rendezvous/base/time.h"

namespace muster::runtime {

/// In milliseconds, rounded up so that a wait never ends before its deadline; -1 for no deadline.
inline int poll_timeout_ms(Instant deadline, Instant now) {
    if (deadline == no_deadline) return -1;
    if (deadline <= now) return 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
    return static_cast<int>(std::min<decltype(left)>(left, std::numeric_limits<int>::max()));
}

}  // namespace muster::runtime
