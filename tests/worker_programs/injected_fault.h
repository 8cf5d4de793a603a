// Faults that faulty_trainer commits, so that tests see what is reported of them.
#pragma once

#include <cstdint>
#include <string>

#include "muster/communicator.h"
#include "rendezvous/base/error.h"

namespace muster::runtime {

enum class FaultKind : std::uint8_t {
    crash,    ///< An uncaught exception.
    memory,   ///< Allocates memory until it is refused or killed.
    bus,      ///< Writes into a mapping of /dev/shm until it is full: SIGBUS.
    disk,     ///< Writes into the checkpoint directory until its disk is full.
    segment,  ///< Writes through a null pointer.
    library,  ///< Loads a shared library that does not exist.
    swap,     ///< Calls a barrier while the other ranks reduce.
    size,     ///< Reduces a different number of elements than the other ranks.
    stop,     ///< Stops itself with a signal.
    slow,     ///< Takes a tenth of a second longer for each step from then on.
};

struct InjectedFault {
    FaultKind kind = FaultKind::crash;
    int rank = 0;
    std::uint64_t step = 0;  ///< The fault occurs before this step. 0: never.
};

/// "crash:1:3" is the crash of rank 1 before step 3. False: the text is none.
bool parse_injected_fault(const std::string& text, InjectedFault& fault);

/// What a fault is committed on.
struct FaultPlace {
    Communicator& world;
    const std::string& checkpoint_dir;
};

/// Commits the fault where it is `rank`'s turn; most do not return. The error is what the communicator says about ranks
/// that differ, or the system about a full disk.
Result<void> commit_if_due(const InjectedFault& fault, int rank, std::uint64_t step, const FaultPlace& place);

}  // namespace muster::runtime
