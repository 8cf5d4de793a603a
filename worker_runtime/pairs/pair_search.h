// The search for bad nodes among the ranks of a job: rank 0 pairs them (pairing.h), every rank tests its pairs, and all
// learn the result.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "worker_runtime/context/round_store.h"

namespace muster::runtime {

struct SearchTerms {
    int rank = 0;
    int world_size = 1;
    int expected_count = 1;  ///< Nodes that should have come.
    std::shared_ptr<RoundStore> store;
};

/// The result as records that agent/doctor/look.h parses: node, pair, path, together, and "end". An error: the store is
/// lost, or rank 0 is. A rank that hangs is in the result.
Result<std::string> search_bad_nodes(const SearchTerms& terms);

}  // namespace muster::runtime
