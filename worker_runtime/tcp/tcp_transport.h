// Collectives over TCP: the ranks of several hosts, or of one that cannot share memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/transport/fd_watch.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

/// How a large all_reduce goes. The result has the same bits.
enum class TcpAlgorithm {
    automatic,  ///< Chosen by the number of ranks and bytes.
    direct,     ///< Every rank sends to every rank; in a group of more than 32, in steps over partners (tcp_steps.h).
    /// From rank to rank and back. f16 and bf16 use `direct` nevertheless; in a group of more than 32 ranks they go as
    /// f32.
    ring,
};

struct TcpOptions {
    /// Where a rank listens, and what it tells its peers: numeric, best first (interface_address.h). One at which it
    /// cannot listen is passed over while there is another.
    std::vector<std::string> addresses;
    int connections_per_peer = 0;                      ///< 0: chosen by the number of cores.
    TcpAlgorithm algorithm = TcpAlgorithm::automatic;  ///< Equal on all ranks.
    /// Where a root answers who asks whom it waits for; null on all ranks: only while it waits itself. A large group
    /// always has one, its own if need be.
    std::shared_ptr<FdWatch> watch{};
    /// Ranks with which this one is connected from the start in a large group, too. They have this one among theirs.
    std::vector<int> more_partners{};
};

/// Connects this rank with all others of the group; with its partners in a large one (mesh/tcp_partners.h). Returns
/// when it has all these connections; an error names the rank that did not come, with what was tried.
Result<std::unique_ptr<Transport>> make_tcp_transport(const GroupTerms& terms, const TcpOptions& options);

}  // namespace muster::runtime
