#include "worker_runtime/tcp/mesh/tcp_mesh.h"

#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/mesh/tcp_mesh_builder.h"
#include "worker_runtime/tcp/mesh/tcp_socket.h"

namespace muster::runtime {

namespace {

std::string host_name() {
    char name[HOST_NAME_MAX + 1] = {};
    return ::gethostname(name, HOST_NAME_MAX) == 0 ? name : "unknown host";
}

/// An address may have gone, or not be there yet; one is enough.
Result<std::vector<FileDescriptor>> listen_at_all(const std::vector<std::string>& addresses) {
    std::vector<FileDescriptor> listeners;
    std::optional<Error> first_failure;
    for (const auto& address : addresses) {
        auto listener = listen_at(address, SOMAXCONN);
        if (listener)
            listeners.push_back(std::move(*listener));
        else if (!first_failure)
            first_failure = listener.error();
    }
    if (listeners.empty()) return first_failure.value_or(Error{Errc::invalid_argument, "no listen address was given"});
    return listeners;
}

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
                             int connections_per_peer) {
    const auto wait = terms.meeting_wait();
    if (terms.security.mode() == WireMode::encrypted)
        if (auto found = find_cipher(); !found) return with_context(found.error(), cat("communicator ", terms.id));
    auto listeners = listen_at_all(addresses);
    if (!listeners) return listeners.error();
    std::vector<TcpPlace> places;
    for (const auto& one : *listeners) {
        const auto at = SocketAddress::local_of(one.get());
        places.push_back({at.numeric(), at.port()});
    }
    const TcpCard own{.places = std::move(places),
                      .stripes = static_cast<std::uint16_t>(std::clamp(connections_per_peer, 1, stripes_max)),
                      .pid = static_cast<std::int32_t>(::getpid()),
                      .host = host_name(),
                      .mode = terms.security.mode(),
                      .token = random_token()};
    auto texts = exchange(terms, "tcp", encode(own), wait);
    if (!texts) return texts.error();
    TcpMesh mesh;
    for (const auto& text : *texts) {
        auto card = decode_card(text);
        if (!card) return card.error();
        mesh.peers.emplace_back().card = std::move(*card);
    }
    if (auto alike = same_mode(mesh); !alike) return with_context(alike.error(), cat("communicator ", terms.id));
    mesh.stripes = std::clamp<int>(mesh.peers[0].card.stripes, 1, stripes_max);
    auto built = MeshBuilder(terms, std::move(mesh), std::move(*listeners)).build(wait);
    if (!built) return with_context(built.error(), cat("communicator ", terms.id, ", rank ", terms.rank));
    return built;
}

}  // namespace muster::runtime
