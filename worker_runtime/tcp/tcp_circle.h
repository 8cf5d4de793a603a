// Steps of the collectives of a large group, over partners only (mesh/tcp_partners.h).
//
// Some ranks stand in a circle. In step k each of them sends to the one that is 2^k places further, and receives from
// the one 2^k places before it. All steps of an exchange are one operation of TcpLanes: a step's data is opened when
// that of the steps before has arrived. After log2(n) steps every rank has something of every other (Bruck et al.,
// "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997).
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/tcp/tcp_lanes.h"
#include "worker_runtime/tcp/tcp_pieces.h"

namespace muster::runtime {

struct TcpCircle {
    std::vector<int> ranks;  ///< In order. Those at a distance of a power of two are partners.
    int own = -1;            ///< This rank's place; -1: it only takes part in the agreement.

    [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
    [[nodiscard]] int at(int place) const {
        return ranks[static_cast<std::size_t>((place % size() + size()) % size())];
    }
};

/// All ranks of the group.
TcpCircle circle_of_all(const TcpLanes& lanes);

// `header` is what ranks compare. Each is called on all ranks.

/// The least of the `value`s of all ranks of the group. No rank returns before all have called.
Result<int> least_of_all(TcpLanes& lanes, const CollectiveHeader& header, int value, const RunTerms& terms);

/// Place i of the circle has what lies from begins[i] to begins[i + 1] of `base`; afterwards all have all of it. A rank
/// sends and receives no byte more than it must. `own_part` is this rank's part if it is not there yet.
Result<void> gather_round(TcpLanes& lanes, const TcpCircle& circle, std::byte* base,
                          const std::vector<std::size_t>& begins, const void* own_part, const CollectiveHeader& header,
                          const RunTerms& terms);

/// From place `root` to all others: through a tree, or, if it is large, from each to the next one.
Result<void> broadcast_round(TcpLanes& lanes, const TcpCircle& circle, int root, std::byte* data,
                             std::size_t size_bytes, const CollectiveHeader& header, const RunTerms& terms);

/// `slot_bytes` from every rank of the group to every other. Each of them travels over up to log2(n) ranks, half as
/// many on average, in few large messages.
struct SlotExchange {
    std::size_t slot_bytes = 0;
    /// Writes what is for `rank`, this one included.
    std::function<void(int rank, std::byte* slot)> fill;
    /// What came from each rank, in rank order. Valid until it returns.
    std::function<void(const std::vector<const void*>& slots)> take;
};
Result<void> exchange_round(TcpLanes& lanes, const SlotExchange& slots, const CollectiveHeader& header,
                            const RunTerms& terms);

/// Lets lanes.weights() be right for `operation`, which is a reduction; in a whole mesh it is.
Result<void> learn_weights(TcpLanes& lanes, const Operation& operation, const CollectiveHeader& header,
                           const RunTerms& terms);

}  // namespace muster::runtime
