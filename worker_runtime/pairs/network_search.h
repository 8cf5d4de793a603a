// Tests each network of the nodes by itself, after the test of pairs has passed: one of a node's addresses may lead
// nowhere.
#pragma once

#include <string>
#include <vector>

#include "worker_runtime/pairs/group_search.h"
#include "worker_runtime/pairs/pair_rounds.h"

namespace muster::runtime {

/// `by_node` has the networks of each node (shared_networks.h). Of them those of `nodes` are tested, at most 8 networks
/// and for about 20 s.
/// Returns records: of each network the nodes, or the two ends of a path, that fail there while others connect. What
/// was not tested is a record, too.
std::string search_networks(PairRounds& rounds, const std::vector<std::string>& by_node, const NodeGroup& nodes);

}  // namespace muster::runtime
