// Selects the transport of a group.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/context.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/plugin.h"
#include "worker_runtime/tcp/tcp_transport.h"
#include "worker_runtime/transport/fd_watch.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

struct TransportTerms {
    TransportChoice choice = TransportChoice::automatic;
    std::vector<std::string> addresses = {};  ///< for TCP: this rank's numeric addresses, best first
    int node = 0;                             ///< the launcher's number of this node
    TcpAlgorithm algorithm = TcpAlgorithm::automatic;
    std::shared_ptr<FdWatch> watch;
    NcclTerms nccl = {};  ///< used if NCCL is the choice
};

/// A collective over the group. Returns shared memory on one node, the hierarchical transport on several nodes with
/// several ranks each, and TCP if memory cannot be shared. If ranks of one host cannot share memory (containers with
/// separate network namespaces), rank 0 logs a warning and they use TCP.
Result<std::unique_ptr<Transport>> make_transport(const GroupTerms& group, const TransportTerms& terms);

}  // namespace muster::runtime
