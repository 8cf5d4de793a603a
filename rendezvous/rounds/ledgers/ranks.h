// Group ranks of the next round, so that as few nodes as possible change theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace muster::rendezvous {

struct RankCandidate {
    std::optional<std::uint32_t> held;  ///< group rank in the round before; empty: it was not in it
    std::int32_t wanted = -1;           ///< --node-rank, -1: none
    bool hosts_endpoint = false;
    std::uint64_t arrival = 0;
};

/// One group rank for each candidate, in their order; together exactly 0..size-1. Held ranks are distinct.
///
/// 1. A node whose held rank is below the size keeps it.
/// 2. Of the others, those that want a free rank get it (the first to arrive, if two want one).
/// 3. The rest take the free ranks from the lowest up: nodes that held a rank first, the highest of them foremost (no
///    spare: the highest moves into the hole); then those that wanted a rank that is taken or too high, in its order;
///    then the endpoint's host; then by arrival.
std::vector<std::uint32_t> assign_ranks(const std::vector<RankCandidate>& candidates);

}  // namespace muster::rendezvous
