// The search for bad nodes among the ranks of a job: rank 0 pairs them (pairing.h), every rank tests its pairs, and all
// learn the result.
#pragma once

#include <string>

#include "rendezvous/base/error.h"
#include "worker_runtime/pairs/pair_rounds.h"

namespace muster::runtime {

/// The result as records that agent/doctor/look.h parses: node, pair, path, mtu, clock, network, together, untested,
/// and "end". An error: the store is lost, or rank 0 is. A rank that hangs is in the result.
Result<std::string> search_bad_nodes(const SearchTerms& terms);

}  // namespace muster::runtime
