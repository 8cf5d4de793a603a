#include "worker_runtime/hierarchical/node_layout.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

bool together(const LocalIdentity& a, const LocalIdentity& b, NodesBy by) {
    return by == NodesBy::number ? a.node == b.node : can_meet(a, b);
}

Error no_nodes(std::string why) {
    return {Errc::unsupported, std::move(why)};
}

}  // namespace

int NodeLayout::node_of(int rank) const {
    return static_cast<int>(std::upper_bound(begins.begin(), begins.end(), rank) - begins.begin()) - 1;
}

int NodeLayout::smallest() const {
    int least = size_of(0);
    for (int node = 1; node < node_count(); ++node) least = std::min(least, size_of(node));
    return least;
}

std::vector<int> NodeLayout::partners_of(int rank) const {
    const int node = node_of(rank);
    const int number = rank - first_of(node);
    const int nodes = node_count();
    std::vector<int> partners;
    if (number < smallest() && node > 0) partners.push_back(first_of(node - 1) + number);
    if (number < smallest() && node + 1 < nodes) partners.push_back(first_of(node + 1) + number);
    for (int distance = 1; number == 0 && distance < nodes; distance *= 2) {
        partners.push_back(first_of((node + distance) % nodes));
        partners.push_back(first_of((node - distance + nodes) % nodes));
    }
    return partners;
}

Result<NodeLayout> lay_out_nodes(const std::vector<LocalIdentity>& identities, NodesBy by) {
    NodeLayout layout;
    const int size = static_cast<int>(identities.size());
    for (int rank = 0; rank < size; ++rank) {
        const auto& one = identities[static_cast<std::size_t>(rank)];
        if (rank > 0 && together(identities[static_cast<std::size_t>(rank - 1)], one, by)) {
            if (!can_meet(identities[static_cast<std::size_t>(layout.begins.back())], one))
                return no_nodes(cat("ranks ", layout.begins.back(), " and ", rank, " of one node cannot share memory"));
            continue;
        }
        for (const int first : layout.begins) {
            if (together(identities[static_cast<std::size_t>(first)], one, by))
                return no_nodes(cat("the ranks of ", one.host, " are not consecutive"));
        }
        layout.begins.push_back(rank);
    }
    layout.begins.push_back(size);
    if (layout.node_count() == 1) return no_nodes("all ranks are on one node");
    bool shares = false;
    for (int node = 0; node < layout.node_count(); ++node) {
        shares = shares || layout.size_of(node) > 1;
        if (layout.size_of(node) > local_ranks_max)
            return no_nodes(cat("more than ", local_ranks_max, " ranks on a node"));
    }
    if (!shares) return no_nodes("each node has one rank");
    return layout;
}

}  // namespace muster::runtime
