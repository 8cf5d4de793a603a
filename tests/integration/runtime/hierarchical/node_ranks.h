// A hierarchical transport for ranks of tests, all on this host.
#pragma once

#include <memory>
#include <numeric>
#include <vector>

#include "rendezvous/base/check.h"
#include "worker_runtime/context/make_transport.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::test {

inline int world_of(const std::vector<int>& nodes) {
    return std::accumulate(nodes.begin(), nodes.end(), 0);
}

inline int node_of(const std::vector<int>& nodes, int rank) {
    int node = 0;
    for (; rank >= nodes[static_cast<std::size_t>(node)]; ++node) rank -= nodes[static_cast<std::size_t>(node)];
    return node;
}

/// Meets the other ranks of `terms`; `nodes`: how many ranks each has. Aborts the test program when that fails.
inline std::unique_ptr<runtime::Transport> join_over_nodes(
    const runtime::GroupTerms& terms, const std::vector<int>& nodes,
    std::shared_ptr<runtime::FdWatch> watch = runtime::FdWatch::start().value()) {
    auto transport = runtime::make_transport(terms, {.choice = TransportChoice::hierarchical,
                                                     .addresses = {"127.0.0.1"},
                                                     .node = node_of(nodes, terms.rank),
                                                     .watch = std::move(watch)})
                         .value();
    MUSTER_CHECK(transport->name() == "hierarchical", terms.rank);
    return transport;
}

}  // namespace muster::test
