// Connections between all ranks of a small group, or between the partners of a large one (tcp_partners.h): the lower
// rank connects to the higher.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/tcp/mesh/tcp_door.h"
#include "worker_runtime/tcp/mesh/tcp_hello.h"
#include "worker_runtime/tcp/records/tcp_stream.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

/// This rank's ends of the connections with one peer; invalid where there is none.
struct TcpPeer {
    TcpCard card;
    TcpStream control;
    TcpStream outgoing;                                    ///< Messages that this rank sends, and their receipts.
    TcpStream incoming;                                    ///< Messages that this rank receives.
    std::array<std::vector<TcpStream>, lane_count> lanes;  ///< All lanes have the same number of stripes.
};

struct TcpMesh {
    std::vector<TcpPeer> peers;  ///< Indexed by rank.
    std::vector<int> partners;   ///< The ranks with connections, ascending.
    int stripes = 1;
    std::unique_ptr<TcpDoor> door{};  ///< Where other ranks connect later, in a large group.

    [[nodiscard]] const TcpCard& card(int rank) const { return peers[static_cast<std::size_t>(rank)].card; }
};

/// "rank 3 (pid 4711 on gpu07)".
std::string describe_rank(int rank, const TcpCard& card);

/// A collective over all ranks of the group. `addresses` are numeric, the best one first; an address at which this rank
/// cannot listen is skipped while another one works. An error names the ranks that did not connect, with what was
/// tried. `more_partners` are this rank's in a large group, beside those of every such group.
Result<TcpMesh> connect_mesh(const GroupTerms& terms, const std::vector<std::string>& addresses,
                             int connections_per_peer, const std::vector<int>& more_partners);

}  // namespace muster::runtime
