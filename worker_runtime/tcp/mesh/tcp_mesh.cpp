#include "worker_runtime/tcp/mesh/tcp_mesh.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/mesh/tcp_mesh_builder.h"
#include "worker_runtime/tcp/mesh/tcp_partners.h"

namespace muster::runtime {

namespace {

/// The proofs settle it; this only finds the words for it.
Result<void> same_mode(const TcpMesh& mesh) {
    const auto& first = mesh.peers.front().card;
    for (std::size_t rank = 1; rank < mesh.peers.size(); ++rank) {
        const auto& card = mesh.peers[rank].card;
        if (card.mode == first.mode) continue;
        return Error{Errc::invalid_argument,
                     cat("ranks protect their connections in different ways: ", describe_rank(0, first), " has ",
                         name_of(first.mode), ", ", describe_rank(static_cast<int>(rank), card), " has ",
                         name_of(card.mode), "; start all nodes with one key and one --wire-security")};
    }
    return {};
}

}  // namespace

std::string describe_rank(int rank, const TcpCard& card) {
    return cat("rank ", rank, " (pid ", card.pid, " on ", card.host, ")");
}

Result<TcpMesh> connect_mesh(const GroupTerms& terms, const std::vector<std::string>& addresses,
                             int connections_per_peer, const std::vector<int>& more_partners) {
    const auto wait = terms.meeting_wait();
    if (terms.security.mode() == WireMode::encrypted)
        if (auto found = find_cipher(); !found) return with_context(found.error(), cat("communicator ", terms.id));
    auto door = MUSTER_TRY(TcpDoor::open(addresses));
    const TcpCard own{.places = door->places(),
                      .stripes = static_cast<std::uint16_t>(std::clamp(connections_per_peer, 1, stripes_max)),
                      .pid = static_cast<std::int32_t>(::getpid()),
                      .host = host_name(),
                      .mode = terms.security.mode(),
                      .token = random_token()};
    auto texts = MUSTER_TRY(exchange(terms, "tcp", encode(own), wait));
    TcpMesh mesh{.peers = {}, .partners = partners_of(terms.rank, terms.size, more_partners), .door = std::move(door)};
    for (const auto& text : texts) mesh.peers.emplace_back().card = MUSTER_TRY(decode_card(text));
    if (auto alike = same_mode(mesh); !alike) return with_context(alike.error(), cat("communicator ", terms.id));
    mesh.stripes = std::clamp<int>(mesh.peers[0].card.stripes, 1, stripes_max);
    const bool whole = is_whole_mesh(terms.size);
    MeshBuilder builder(terms, std::move(mesh), {.transfers = whole});
    if (auto built = builder.build(wait); !built) return built.error();
    if (whole) builder.mesh().door.reset();
    return std::move(builder.mesh());
}

}  // namespace muster::runtime
