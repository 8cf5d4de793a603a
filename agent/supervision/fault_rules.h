// Whether a fault may be injected into this node. Pure; agent/commands/fault_injector.h does it.
#pragma once

#include <set>
#include <string>

#include "rendezvous/base/time.h"
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

/// Whether a worker's end so long `after` the fault was injected into it may be its doing. What goes on by itself
/// (slow, stop --for) explains nothing any more some seconds after it went on; the others end the worker, or leave it
/// to whoever ends it.
bool may_explain(const native::Fault& fault, Duration after);

}  // namespace muster::agent
