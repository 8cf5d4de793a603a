// What variables of one process cannot show: that two processes were told one rank, or ranks were told different
// things. Each rank says in the round's store who it is, before it meets anybody.
#pragma once

#include <cstdint>
#include <string>

#include "muster/store.h"
#include "rendezvous/base/error.h"

namespace muster::runtime {

struct RankClaim {
    int rank = 0;
    int world_size = 1;
    std::string transport;  ///< as MUSTER_TRANSPORT has it
};

/// Which opening of a context by this rank in a world of this size it is, from 1 on: a worker may run several programs
/// one after another, and the n-th of each rank meet. invalid_argument: a process that is not known to have ended has
/// this rank in this round; or one of this host was told otherwise. The text names the variable, both values and the
/// other process.
Result<std::int64_t> claim_rank(Store& store, const RankClaim& claim);

}  // namespace muster::runtime
