// The faults that `muster fault` injects into a job (agent/commands/FAULTS.md has the table).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "rendezvous/base/system/self_signals.h"

namespace muster::native {

enum class FaultKind : std::uint8_t {
    kill = 0,           ///< SIGKILL
    stop = 1,           ///< SIGSTOP, and SIGCONT after `for_ms`
    slow = 2,           ///< SIGSTOP and SIGCONT in turn, ten times a second, for `for_ms`
    partition = 3,      ///< the agent says and hears nothing for `for_ms`, as behind a network that drops everything
    out_of_memory = 4,  ///< a memory limit around one worker, at which the kernel kills it
};

enum class FaultTarget : std::uint8_t { worker = 0, agent = 1, daemon = 2 };

struct Fault {
    FaultKind kind = FaultKind::kill;
    FaultTarget target = FaultTarget::worker;
    std::uint32_t rank = 0;             ///< of a worker
    std::uint32_t for_ms = 0;           ///< 0: a stop that nobody ends
    std::uint32_t stopped_percent = 0;  ///< of slow: how much of the time it stands still
    friend bool operator==(const Fault&, const Fault&) = default;
};

/// "muster fault stop rank 3 --for 10": the command that asks for it. The node's name is not in a Fault.
std::string describe(const Fault& fault);

/// How an agent or a daemon does to itself what is to be done to it: kill, stop or slow.
SelfSignals self_signals(const Fault& fault);
/// Of slow: so long it stands still, then runs, each time.
std::pair<Duration, Duration> slow_cycle(const Fault& fault);

/// Why no such fault can be injected into anything; empty where it can.
std::string wrong_with(const Fault& fault);

}  // namespace muster::native
