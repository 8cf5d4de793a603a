// The two groups of a rank: all ranks over TCP, and the ranks of its node in shared memory.
#pragma once

#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/hierarchical/node_layout.h"
#include "worker_runtime/shared_memory/shared_group.h"
#include "worker_runtime/tcp/tcp_group.h"
#include "worker_runtime/tcp/tcp_lanes.h"

namespace muster::runtime {

struct NodeGroups {
    NodeLayout layout;
    TcpGroup& tcp;
    TcpLanes& lanes;
    SharedGroup* node;  ///< Null if this rank is alone on its node.
    int number;         ///< Number of this rank's node.

    // A failure of one group also fails the other.
    [[nodiscard]] Result<void> fail_node_on_error(Result<void> result) const {
        if (!result && node != nullptr) node->fail(result.error().code, result.error().context);
        return result;
    }
    [[nodiscard]] Result<void> fail_tcp_on_error(Result<void> result) const {
        if (!result) return tcp.fail(result.error().code, result.error().context);
        return result;
    }
};

}  // namespace muster::runtime
