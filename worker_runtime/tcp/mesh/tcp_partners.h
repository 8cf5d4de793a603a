// Which ranks of a group are connected from the start.
#pragma once

#include <algorithm>
#include <vector>

#include "worker_runtime/tcp/mesh/tcp_limits.h"

namespace muster::runtime {

/// Up to whole_mesh_ranks_max ranks all are connected with all. In a larger group a rank is connected with its
/// partners, those at a distance of a power of two in either direction: about 2 log2(size) ranks. Collectives of such a
/// group need no others (tcp/tcp_steps.h), and it has news of a failure from them.
[[nodiscard]] constexpr bool is_whole_mesh(int size) {
    return size <= whole_mesh_ranks_max;
}

/// The partners of `rank`, ascending. `more` are further ones, which have this rank among theirs.
[[nodiscard]] inline std::vector<int> partners_of(int rank, int size, std::vector<int> more = {}) {
    auto partners = std::move(more);
    for (int other = 0; is_whole_mesh(size) && other < size; ++other) partners.push_back(other);
    for (int distance = 1; distance < size; distance *= 2) {
        partners.push_back((rank + distance) % size);
        partners.push_back((rank - distance + size) % size);
    }
    std::erase(partners, rank);
    std::sort(partners.begin(), partners.end());
    partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
    return partners;
}

}  // namespace muster::runtime
