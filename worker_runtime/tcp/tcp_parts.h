// The parts of a TCP transport, for a transport that extends it.
#pragma once

#include <memory>

#include "rendezvous/base/error.h"
#include "worker_runtime/tcp/tcp_group.h"
#include "worker_runtime/tcp/tcp_lanes.h"
#include "worker_runtime/tcp/tcp_transport.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

struct TcpParts {
    std::unique_ptr<TcpGroup> group;
    std::unique_ptr<TcpLanes> lanes;
};

/// Connects this rank with all others of the group, or with its partners.
Result<TcpParts> connect_tcp(const GroupTerms& terms, const TcpOptions& options);

/// Takes the parts over; they live as long as the transport, and run() is the only one who uses the lanes meanwhile.
std::unique_ptr<Transport> tcp_transport_over(TcpParts parts, TcpAlgorithm algorithm);

/// A collective: do all ranks have their memory of this size? limit_exceeded names the first that lacks it.
Result<void> agree_on_memory(const TcpGroup& group, TcpLanes& lanes, std::size_t size_bytes, bool got,
                             const RunTerms& terms);

}  // namespace muster::runtime
