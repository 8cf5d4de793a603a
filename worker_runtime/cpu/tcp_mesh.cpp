#include "worker_runtime/cpu/tcp_mesh.h"

#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/text.h"
#include "worker_runtime/cpu/tcp_limits.h"
#include "worker_runtime/cpu/tcp_mesh_builder.h"
#include "worker_runtime/cpu/tcp_socket.h"

namespace muster::runtime {

namespace {

std::string host_name() {
    char name[HOST_NAME_MAX + 1] = {};
    return ::gethostname(name, HOST_NAME_MAX) == 0 ? name : "unknown host";
}

}  // namespace

std::string describe_rank(int rank, const TcpCard& card) {
    return cat("rank ", rank, " (pid ", card.pid, " on ", card.host, ")");
}

Result<TcpMesh> connect_mesh(const GroupTerms& terms, const TcpOptions& options) {
    const auto deadline = std::chrono::steady_clock::now() + terms.meeting_timeout;
    auto listener = listen_at(options.address, SOMAXCONN);
    if (!listener) return listener.error();
    const TcpCard own{.address = options.address,
                      .port = SocketAddress::local_of(listener->get()).port(),
                      .stripes = static_cast<std::uint16_t>(std::clamp(options.connections_per_peer, 1, stripes_max)),
                      .pid = static_cast<std::int32_t>(::getpid()),
                      .host = host_name(),
                      .token = random_token()};
    auto texts = exchange(terms, "tcp", encode(own), deadline);
    if (!texts) return texts.error();
    TcpMesh mesh;
    for (const auto& text : *texts) {
        auto card = decode_card(text);
        if (!card) return card.error();
        mesh.peers.emplace_back().card = std::move(*card);
    }
    mesh.stripes = std::clamp<int>(mesh.peers[0].card.stripes, 1, stripes_max);
    auto built = MeshBuilder(terms, std::move(mesh), std::move(*listener)).build(deadline);
    if (!built) return with_context(built.error(), cat("communicator ", terms.id, ", rank ", terms.rank));
    return built;
}

}  // namespace muster::runtime
