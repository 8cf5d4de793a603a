// What variables of one process cannot show: that two processes were told one rank, or ranks were told different
// things. Each rank says in the round's store who it is, before it meets anybody.
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
    std::string transport;                            ///< as MUSTER_TRANSPORT has it
    std::string transport_name = "MUSTER_TRANSPORT";  ///< who has said it: the variable, or the option "transport"
};

struct HeldRank {
    /// Which opening of a context by this rank in a world of this size it is, from 1 on: a worker may run several
    /// programs one after another, and the n-th of each rank meet.
    std::int64_t opening = 1;
    std::string key;     ///< what others read to see whether the holder lives; claim_is_over once it holds no more
    std::string before;  ///< who had the rank before, where nobody here can see whether it lives; else empty
};

inline constexpr std::string_view claim_is_over = "ended";

/// invalid_argument: a process that lives has this rank in this round; or one of this host was told otherwise. The text
/// names the variable, both values and the other process.
Result<HeldRank> claim_rank(Store& store, const RankClaim& claim);

/// Why ranks may not have met: those that are at another opening, and who had this rank before. Empty where nothing is
/// known. Takes seconds at most.
std::string obstacles_to_meeting(Store& store, const RankClaim& claim, const HeldRank& held);

}  // namespace muster::runtime
