// The tree of a round's members, in which they agree that the daemon is lost (client/core/fencing.h).
//
// The members that have not left stand in the order of their group ranks, at positions 0 to size - 1. The node at
// position p > 0 has its parent at (p - 1) / fan_out, so the tree is as flat as it can be, and all follows from two
// numbers: the fan-out is a constant of the protocol's version, so no two nodes can count by different ones.
#pragma once

#include <algorithm>
#include <cstdint>

namespace muster::native {

/// Changing it changes protocol_version.
inline constexpr std::uint32_t tree_fan_out = 16;

struct TreePlace {
    std::uint32_t position = 0;
    std::uint32_t size = 1;
    std::uint32_t fan_out = tree_fan_out;  ///< Never sent. Simulations have small rounds in deep trees.

    /// Of any position but 0.
    [[nodiscard]] std::uint32_t parent_of(std::uint32_t of) const { return (of - 1) / fan_out; }
    [[nodiscard]] std::uint64_t first_child_of(std::uint32_t of) const { return std::uint64_t{of} * fan_out + 1; }
    [[nodiscard]] std::uint32_t child_count_of(std::uint32_t of) const {
        const auto first = first_child_of(of);
        return first >= size ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(fan_out, size - first));
    }
    /// Steps from the last position to the root.
    [[nodiscard]] std::uint32_t depth() const {
        std::uint32_t steps = 0;
        for (auto at = size - 1; at > 0; at = parent_of(at)) ++steps;
        return steps;
    }
    friend bool operator==(const TreePlace&, const TreePlace&) = default;
};

static_assert(tree_fan_out <= 32, "PeerAsk::covered has a bit for each child");

}  // namespace muster::native
