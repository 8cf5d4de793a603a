// The roots at which NCCL's ranks connect. Each root is in the process of one rank and has a unique id, which is sent
// through the round's store.
//
// One root serves a world of up to 256 ranks. Larger worlds have several (ncclCommInitRankScalable), because every rank
// writes to its root at the same moment. The ranks are divided into blocks of almost equal size, each with its own
// root, which NCCL expects in the block's first rank.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::runtime {

inline constexpr int nccl_ranks_per_root_max = 256;

struct NcclRoots {
    int size = 1;   ///< ranks
    int count = 1;  ///< roots: 1 <= count <= size

    /// Returns the smallest number of roots that can serve `size` ranks.
    static NcclRoots for_world(int size, int ranks_per_root = nccl_ranks_per_root_max);

    /// Returns the root that `rank` creates; -1 for none.
    [[nodiscard]] int held_by(int rank) const;
};

/// Returns the store key of the unique id of a root of communicator `group`. The store's own prefix contains the round.
std::string nccl_root_key(std::string_view group, int root);

/// Returns all keys, in the order in which NCCL expects the ids.
std::vector<std::string> nccl_root_keys(std::string_view group, const NcclRoots& roots);

}  // namespace muster::runtime
