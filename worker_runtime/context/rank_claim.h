// Detects settings that one process cannot check: two processes with one rank, or ranks with different settings. Each
// rank publishes its identity in the round's store before it meets the others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "muster/store.h"
#include "rendezvous/base/error.h"

namespace muster::runtime {

struct RankClaim {
    int rank = 0;
    int world_size = 1;
    std::string transport;                            ///< the value of MUSTER_TRANSPORT
    std::string transport_name = "MUSTER_TRANSPORT";  ///< its source: the variable, or the option "transport"
};

struct HeldRank {
    /// The number of this opening of a context by this rank in a world of this size, from 1. A worker may run several
    /// programs one after another, and the n-th programs of all ranks meet.
    std::int64_t opening = 1;
    std::string key;     ///< the key that others read to check whether the holder lives; claim_is_over after release
    std::string before;  ///< the previous holder of the rank, if this host cannot check whether it lives; else empty
};

inline constexpr std::string_view claim_is_over = "ended";

/// invalid_argument: a live process has this rank in this round, or a rank has other settings. The text names the
/// variable, both values and the other process.
Result<HeldRank> claim_rank(Store& store, const RankClaim& claim);

/// Reasons why ranks may not have met: ranks at another opening, and the previous holder of this rank. Empty if none is
/// known. Takes a few seconds at most.
std::string obstacles_to_meeting(Store& store, const RankClaim& claim, const HeldRank& held);

}  // namespace muster::runtime
