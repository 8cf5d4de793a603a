// Decides whether a fault may be injected into this node. Pure; agent/commands/fault_injector.h injects it.
#pragma once

#include <set>
#include <string>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

struct FaultFacts {
    bool allowed = false;           ///< Set by --allow-faults.
    Round round = no_round;         ///< The running round, or the last one.
    std::uint32_t rank_base = 0;    ///< Lowest rank of this node's workers.
    std::set<std::uint32_t> alive;  ///< Local ranks of running workers.
};

/// Why not; empty where it may be.
std::string objection(const native::FaultOrdered& order, const FaultFacts& facts);

/// Whether a worker's end so long `after` the fault was injected into it may be its doing. What goes on by itself
/// (slow, stop --for) explains nothing any more some seconds after it went on; the others end the worker, or leave it
/// to whoever ends it.
bool may_explain(const native::Fault& fault, Duration after);

}  // namespace muster::agent
