// Connections between all pairs of ranks: the lower rank connects to the higher.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/tcp/mesh/tcp_hello.h"
#include "worker_runtime/tcp/records/tcp_stream.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

/// This rank's ends of the connections with one peer; all invalid for itself.
struct TcpPeer {
    TcpCard card;
    TcpStream control;
    TcpStream outgoing;                                    ///< Messages that this rank sends, and their receipts.
    TcpStream incoming;                                    ///< Messages that this rank receives.
    std::array<std::vector<TcpStream>, lane_count> lanes;  ///< All lanes have the same number of stripes.
};

struct TcpMesh {
    std::vector<TcpPeer> peers;  ///< Indexed by rank.
    int stripes = 1;
};

/// "rank 3 (pid 4711 on gpu07)".
std::string describe_rank(int rank, const TcpCard& card);

/// A collective over all ranks of the group. `addresses` are numeric, the best one first; an address at which this rank
/// cannot listen is skipped while another one works. An error names the ranks that did not connect, with what was
/// tried.
Result<TcpMesh> connect_mesh(const GroupTerms& terms, const std::vector<std::string>& addresses,
                             int connections_per_peer);

}  // namespace muster::runtime
