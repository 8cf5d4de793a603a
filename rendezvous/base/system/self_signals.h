// Fault injection: a child process kills, stops or slows down this process. A stopped process cannot resume itself, so
// a child sends the signals.
#pragma once

#include <cstdint>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

struct SelfSignals {
    Duration after{};         ///< Delay of the first signal, so that pending messages are sent.
    int signal = 0;           ///< SIGKILL or SIGSTOP.
    Duration stopped{};       ///< Time from SIGSTOP to SIGCONT. Zero: it is not continued.
    Duration running{};       ///< Time from SIGCONT to the next SIGSTOP.
    std::uint32_t times = 1;  ///< Number of stops.
};

/// Returns at once; the signals come later, from a process that ends with this one. Waits for an intermediate child
/// (about a millisecond). The error says what the kernel refused.
Result<void> signal_self(const SelfSignals& plan);

}  // namespace muster
