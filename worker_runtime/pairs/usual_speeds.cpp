#include "worker_runtime/pairs/usual_speeds.h"

#include <algorithm>
#include <cstdint>

namespace muster::runtime {

namespace {

/// The type of nodes that have too few of their like.
constexpr int any_type = -1;

}  // namespace

UsualSpeeds::UsualSpeeds(std::vector<int> types, int slow_percent)
    : types_(std::move(types)), slow_percent_(slow_percent) {
    for (auto& type : types_)
        if (std::ranges::count(types_, type) < comparable_nodes) type = any_type;
}

void UsualSpeeds::told(NodePair pair, int mbytes_per_s) {
    told_[any_type].push_back(mbytes_per_s);
    if (type(pair.first) == type(pair.second) && type(pair.first) != any_type)
        told_[type(pair.first)].push_back(mbytes_per_s);
}

void UsualSpeeds::end_round() {
    for (auto& [type, speeds] : std::exchange(told_, {})) {
        std::ranges::sort(speeds);
        usual_.try_emplace(type, speeds.size() < 3 ? speeds.back() : speeds[speeds.size() / 2]);
    }
}

int UsualSpeeds::of(const NodeGroup& nodes) const {
    int slowest = 0;
    for (const int node : nodes) {
        const auto found = usual_.find(type(node));
        if (found == usual_.end()) return 0;
        slowest = slowest == 0 ? found->second : std::min(slowest, found->second);
    }
    return slowest;
}

bool UsualSpeeds::is_slow(const NodeGroup& nodes, int mbytes_per_s) const {
    // The many messages of a group make more work for CPUs, and the rates of its kernels say little: each is that of
    // one connection at one moment.
    const std::int64_t parts = nodes.size() > 2 ? 200 : 100;
    return parts * mbytes_per_s < std::int64_t{slow_percent_} * of(nodes);
}

}  // namespace muster::runtime
