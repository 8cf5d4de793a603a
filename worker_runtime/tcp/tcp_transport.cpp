#include "worker_runtime/tcp/tcp_transport.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rendezvous/base/check.h"
#include "rendezvous/base/kernel/available_memory.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/control_watch.h"
#include "worker_runtime/tcp/mesh/tcp_mesh.h"
#include "worker_runtime/tcp/tcp_channel.h"
#include "worker_runtime/tcp/tcp_collectives.h"
#include "worker_runtime/tcp/tcp_group.h"
#include "worker_runtime/tcp/tcp_lanes.h"
#include "worker_runtime/tcp/tcp_parts.h"

namespace muster::runtime {

namespace {

/// Private memory that goes with the object.
struct Pages {
    std::span<std::byte> bytes;

    explicit Pages(std::size_t size_bytes) {
        void* const data = ::mmap(nullptr, std::max<std::size_t>(size_bytes, 1), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data != MAP_FAILED) bytes = {static_cast<std::byte*>(data), size_bytes};
    }
    ~Pages() {
        if (bytes.data()) ::munmap(bytes.data(), std::max<std::size_t>(bytes.size(), 1));
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
};

/// A barrier whose headers say whether every rank has got its memory.
class AllocationPlan final : public CollectivePlan {
  public:
    /// The first rank that lacks memory; -1 for none.
    int lacking = -1;

  private:
    void begin(TcpLanes& /*lanes*/) override {}
    void agreed(TcpLanes& lanes) override {
        for (int rank = lanes.size() - 1; rank >= 0; --rank)
            if (lanes.header(rank).flags & CollectiveHeader::lacks) lacking = rank;
    }
};

class TcpTransport final : public Transport {
  public:
    TcpTransport(std::unique_ptr<TcpGroup> group, std::unique_ptr<TcpLanes> lanes, TcpAlgorithm algorithm)
        : group_(std::move(group)), lanes_(std::move(lanes)), algorithm_(algorithm) {
        for (int rank = 0; rank < group_->size(); ++rank) {
            outgoing_.emplace_back(*group_, rank, group_->peer(rank).outgoing);
            incoming_.emplace_back(*group_, rank, group_->peer(rank).incoming);
        }
    }

    Result<void> answer_at_all_times(std::shared_ptr<FdWatch> watch) {
        ears_.emplace(*group_, std::move(watch));
        auto begun = ears_->begin([group = group_.get()](int rank) {
            const auto over = group->hear(rank);
            return over && !*over;
        });
        if (begun) group_->trace_for_parts();
        return begun;
    }

    [[nodiscard]] std::string_view name() const override { return "tcp"; }

    Result<void> run(const Operation& operation, const RunTerms& terms) override {
        return run_collective(*lanes_, operation, algorithm_, terms);
    }

    Result<void> transfer(const Operation& operation, const RunTerms& terms) override {
        const auto peer = static_cast<std::size_t>(operation.peer);
        MUSTER_CHECK(peer < outgoing_.size() && operation.peer != group_->rank(), peer, outgoing_.size());
        return (operation.kind == OperationKind::send ? outgoing_ : incoming_)[peer].move(operation, terms);
    }

    bool has_message(int peer) override { return incoming_[static_cast<std::size_t>(peer)].has_message(); }

    Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms) override {
        // All ranks of this host look before any of them takes: each leaves room for all.
        const bool fits = available_memory_bytes() / static_cast<std::size_t>(group_->ranks_here()) > size_bytes;
        auto pages = std::make_shared<Pages>(fits ? size_bytes : 0);
        const bool got = fits && pages->bytes.data() != nullptr;
        if (auto agreed = agree_on_memory(*group_, *lanes_, size_bytes, got, terms); !agreed) return agreed.error();
        return Memory(std::shared_ptr<std::span<std::byte>>(pages, &pages->bytes));
    }

    Result<void> check_alive(Instant /*since*/) override { return group_->check_alive(); }

    Error fail(const Error& error) override { return group_->fail(error.code, error.context); }

    void abort(std::string_view why) override {
        group_->fail(Errc::cancelled, cat(group_->who(group_->rank()), " aborted: ", why));
    }

  private:
    std::unique_ptr<TcpGroup> group_;
    std::unique_ptr<TcpLanes> lanes_;
    const TcpAlgorithm algorithm_;
    std::vector<TcpChannel> outgoing_;  ///< Indexed by the receiving rank.
    std::vector<TcpChannel> incoming_;  ///< Indexed by the sending rank.
    std::optional<ControlWatch> ears_;
};

}  // namespace

Result<TcpParts> connect_tcp(const GroupTerms& terms, const TcpOptions& options) {
    MUSTER_CHECK(terms.size >= 2 && terms.rank >= 0 && terms.rank < terms.size, terms.rank, terms.size);
    FileDescriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake.valid()) return error_from_errno(errno, "make an event descriptor");
    auto mesh = connect_mesh(terms, options.addresses, options.connections_per_peer);
    if (!mesh) return mesh.error();
    auto group = std::make_unique<TcpGroup>(terms, std::move(*mesh), std::move(wake));
    auto lanes = TcpLanes::over(*group);
    if (!lanes) return lanes.error();
    return TcpParts{.group = std::move(group), .lanes = std::move(*lanes)};
}

std::unique_ptr<Transport> tcp_transport_over(TcpParts parts, TcpAlgorithm algorithm) {
    return std::make_unique<TcpTransport>(std::move(parts.group), std::move(parts.lanes), algorithm);
}

Result<void> agree_on_memory(const TcpGroup& group, TcpLanes& lanes, std::size_t size_bytes, bool got,
                             const RunTerms& terms) {
    CollectiveHeader header{.flags = CollectiveHeader::allocates, .count = size_bytes};
    if (!got) header.flags |= CollectiveHeader::lacks;
    AllocationPlan plan;
    if (auto done = lanes.carry(plan, header, terms); !done) return done.error();
    if (plan.lacking < 0) return {};
    return Error{
        Errc::limit_exceeded,
        cat("cannot reserve ", size_bytes >> 10, " KiB for communicator ", group.id(), ": ", group.who(plan.lacking),
            " has too little memory; give the job more of it, or use smaller buckets or fewer ranks on a host")};
}

Result<std::unique_ptr<Transport>> make_tcp_transport(const GroupTerms& terms, const TcpOptions& options) {
    auto parts = connect_tcp(terms, options);
    if (!parts) return parts.error();
    auto transport =
        std::make_unique<TcpTransport>(std::move(parts->group), std::move(parts->lanes), options.algorithm);
    if (options.watch && terms.waits && !terms.is_part())
        if (auto heard = transport->answer_at_all_times(options.watch); !heard) return heard.error();
    return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace muster::runtime
