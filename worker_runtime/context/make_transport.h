// Which transport a group gets.
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
    std::vector<std::string> addresses = {};  ///< for TCP: numeric, where other ranks may reach this one, best first
    int node = 0;                             ///< the launcher's number of this node
    TcpAlgorithm algorithm = TcpAlgorithm::automatic;
    std::shared_ptr<FdWatch> watch;
    NcclTerms nccl = {};  ///< where that is the choice
};

/// A collective over the group: shared memory on one node, the hierarchical transport on several with several ranks
/// each, TCP where memory cannot be shared. Where ranks sit on one host but cannot share memory (containers with
/// networks of their own), a log line of rank 0 says so and TCP serves them.
Result<std::unique_ptr<Transport>> make_transport(const GroupTerms& group, const TransportTerms& terms);

}  // namespace muster::runtime
