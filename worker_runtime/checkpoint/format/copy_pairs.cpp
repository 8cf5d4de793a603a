#include "worker_runtime/checkpoint/format/copy_pairs.h"

#include <cstddef>
#include <map>
#include <set>

namespace muster::runtime {

std::vector<int> copy_targets(const std::vector<int>& nodes) {
    std::map<int, std::vector<int>> ranks;  // by node
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) ranks[nodes[rank]].push_back(static_cast<int>(rank));
    std::vector<int> targets(nodes.size(), -1);
    if (ranks.size() < 2) return targets;
    for (auto node = ranks.begin(); node != ranks.end(); ++node) {
        const auto after = std::next(node);
        const auto& next = after == ranks.end() ? ranks.begin()->second : after->second;
        for (std::size_t i = 0; i < node->second.size(); ++i) {
            targets[static_cast<std::size_t>(node->second[i])] = next[i % next.size()];
        }
    }
    return targets;
}

std::vector<int> copy_ring(const std::vector<int>& targets, int rank) {
    std::set<int> ring = {rank};
    for (std::size_t before = 0; before != ring.size();) {
        before = ring.size();
        for (std::size_t from = 0; from < targets.size(); ++from) {
            const int source = static_cast<int>(from);
            if (targets[from] < 0 || (!ring.contains(source) && !ring.contains(targets[from]))) continue;
            ring.insert({source, targets[from]});
        }
    }
    return {ring.begin(), ring.end()};
}

}  // namespace muster::runtime
