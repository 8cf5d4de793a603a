#include "worker_runtime/context/make_transport.h"

#include <utility>
#include <vector>

#include "rendezvous/base/log.h"
#include "worker_runtime/hierarchical/hierarchical_transport.h"
#include "worker_runtime/shared_memory/local_meeting.h"
#include "worker_runtime/shared_memory/shared_memory_transport.h"
#include "worker_runtime/transport/alone_transport.h"

namespace muster::runtime {

namespace {

/// Why these ranks cannot share memory; empty when they can.
std::string obstacle(const std::vector<LocalIdentity>& identities) {
    const LocalIdentity& first = identities.front();
    if (identities.size() > local_ranks_max) return cat("more than ", local_ranks_max, " ranks");
    for (const auto& other : identities) {
        if (other.kernel != first.kernel) return cat(first.host, " and ", other.host, " are different hosts");
    }
    if (auto differing = differing_formats(identities); !differing.empty()) return differing;
    for (const auto& other : identities) {
        if (other.user != first.user) return cat("ranks ", first.rank, " and ", other.rank, " run as different users");
        if (!can_meet(first, other)) return "ranks of one host have different network namespaces (containers?)";
    }
    return "";
}

}  // namespace

Result<std::unique_ptr<Transport>> make_transport(const GroupTerms& group, const TransportTerms& terms) {
    if (terms.choice == TransportChoice::nccl) {
        if (group.security.mode() == WireMode::encrypted && group.rank == 0 && !group.is_part())
            log(LogLevel::warning,
                "--wire-security encrypt does not cover NCCL, which can neither encrypt its "
                "connections nor check who connects: isolate its network (NCCL_SOCKET_IFNAME)");
        return make_nccl_transport(group, terms.nccl);
    }
    if (group.size == 1) return make_alone_transport();
    const TcpOptions tcp{.addresses = terms.addresses, .algorithm = terms.algorithm, .watch = terms.watch};
    if (terms.choice == TransportChoice::tcp) return make_tcp_transport(group, tcp);
    const auto wait = group.meeting_wait();
    auto door = MUSTER_TRY(LocalDoor::open(group.rank));
    door.identity.node = terms.node;
    door.identity.rank = group.in_root(group.rank);
    auto texts = MUSTER_TRY(exchange(group, "identity", door.identity.encode(), wait));
    std::vector<LocalIdentity> identities;
    for (const auto& text : texts) {
        identities.push_back(MUSTER_TRY(LocalIdentity::decode(text)));
    }
    const bool by_number = terms.choice == TransportChoice::hierarchical;
    const std::string why = obstacle(identities);
    if (why.empty() && !by_number)
        return make_shared_memory_transport(group, std::move(door), std::move(identities), terms.watch);
    if (terms.choice == TransportChoice::shared_memory) {
        return Error{Errc::unsupported, cat("communicator ", group.id, " cannot use shared memory: ", why)};
    }
    const std::string differing = differing_formats(identities);
    if (group.rank == 0 && !differing.empty())
        log(LogLevel::warning, "communicator ", group.id,
            " does not use shared memory between all ranks of a host: ", differing);
    auto layout = lay_out_nodes(identities, by_number ? NodesBy::number : NodesBy::memory);
    if (layout) {
        return make_hierarchical_transport(group, tcp, std::move(door), std::move(identities), std::move(*layout),
                                           terms.watch);
    }
    if (by_number) {
        return Error{Errc::unsupported, cat("communicator ", group.id, " cannot be hierarchical: ",
                                            layout.error().context, differing.empty() ? "" : "; ", differing)};
    }
    if (group.rank == 0 && differing.empty() && identities.front().kernel == identities.back().kernel) {
        log(LogLevel::warning, "communicator ", group.id, " uses TCP: ", why);
    }
    return make_tcp_transport(group, tcp);
}

}  // namespace muster::runtime
