// Fault injection: a child process kills, stops or slows down this process. A stopped process cannot resume itself, so
// a child sends the signals.
#pragma once

#include <cstdint>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

struct SelfSignals {
    Duration after{};         ///< before the first: words that are on their way go out
    int signal = 0;           ///< SIGKILL or SIGSTOP
    Duration stopped{};       ///< from SIGSTOP to SIGCONT; zero: it is not continued
    Duration running{};       ///< from SIGCONT to the next SIGSTOP
    std::uint32_t times = 1;  ///< how often it is stopped
};

/// Returns at once; the signals come later, from a process that ends with this one. Waits for an intermediate child
/// (about a millisecond). The error says what the kernel refused.
Result<void> signal_self(const SelfSignals& plan);

}  // namespace muster
