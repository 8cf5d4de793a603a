#include "rendezvous/rounds/ledgers/ranks.h"

#include <algorithm>
#include <tuple>

#include "rendezvous/base/check.h"

namespace muster::rendezvous {

namespace {

constexpr std::uint32_t unset = UINT32_MAX;

/// Smaller comes first when the free ranks are given out.
auto claim(const RankCandidate& candidate) {
    const bool held = candidate.held.has_value();
    const bool wants = candidate.wanted >= 0;
    return std::tuple(!held, held ? ~std::uint64_t{*candidate.held} : 0, !wants, wants ? candidate.wanted : 0,
                      !candidate.hosts_endpoint, candidate.arrival);
}

}  // namespace

std::vector<std::uint32_t> assign_ranks(const std::vector<RankCandidate>& candidates) {
    const auto size = candidates.size();
    std::vector<std::uint32_t> ranks(size, unset);
    std::vector<char> taken(size, 0);
    const auto give = [&](std::size_t candidate, std::uint32_t rank) {
        ranks[candidate] = rank;
        taken[rank] = 1;
    };
    for (std::size_t i = 0; i < size; ++i) {
        if (!candidates[i].held || *candidates[i].held >= size) continue;
        MUSTER_CHECK(!taken[*candidates[i].held], *candidates[i].held);
        give(i, *candidates[i].held);
    }
    std::vector<std::size_t> rest;
    for (std::size_t i = 0; i < size; ++i)
        if (ranks[i] == unset) rest.push_back(i);
    std::sort(rest.begin(), rest.end(), [&](auto a, auto b) { return candidates[a].arrival < candidates[b].arrival; });
    for (const auto i : rest) {
        const auto wanted = candidates[i].wanted;
        if (wanted >= 0 && static_cast<std::size_t>(wanted) < size && !taken[static_cast<std::size_t>(wanted)])
            give(i, static_cast<std::uint32_t>(wanted));
    }
    std::erase_if(rest, [&](auto i) { return ranks[i] != unset; });
    std::sort(rest.begin(), rest.end(), [&](auto a, auto b) { return claim(candidates[a]) < claim(candidates[b]); });
    std::uint32_t rank = 0;
    for (const auto i : rest) {
        while (taken[rank]) ++rank;
        give(i, rank);
    }
    return ranks;
}

}  // namespace muster::rendezvous
