// Whether a fault may be injected into this node. Pure; agent/fault_injector.h does it.
#pragma once

#include <set>
#include <string>

#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

struct FaultFacts {
    bool allowed = false;           ///< --allow-faults
    Round round = no_round;         ///< the one that runs here, or ran last
    std::uint32_t rank_base = 0;    ///< of its workers
    std::set<std::uint32_t> alive;  ///< local ranks whose workers run
};

/// Why not; empty where it may be.
std::string objection(const native::FaultOrdered& order, const FaultFacts& facts);

}  // namespace muster::agent
