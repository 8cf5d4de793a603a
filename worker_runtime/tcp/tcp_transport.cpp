#include "worker_runtime/tcp/tcp_transport.h"

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
    Pages& operator=(Pages&&) = delete;
};

class TcpTransport final : public Transport {
  public:
    TcpTransport(std::unique_ptr<TcpGroup> group, std::unique_ptr<TcpLanes> lanes, TcpAlgorithm algorithm)
        : group_(std::move(group)), lanes_(std::move(lanes)), algorithm_(algorithm) {
        for (int rank = 0; rank < group_->size(); ++rank) {
            outgoing_.emplace_back(*group_, rank);
            incoming_.emplace_back(*group_, rank);
        }
    }

    Result<void> answer_at_all_times(std::shared_ptr<FdWatch> watch) {
        ears_.emplace(*group_, std::move(watch));
        auto begun = ears_->begin([group = group_.get()](int rank) {
            // In a large group others depend on this rank's news of a death.
            const auto over = group->is_whole() ? group->hear(rank) : group->receive_or_lose(rank);
            return over && !*over;
        });
        if (begun) group_->trace_for_parts();
        return begun;
    }

    [[nodiscard]] bool listens_later() const { return !group_->is_whole(); }

    [[nodiscard]] std::string_view name() const override { return "tcp"; }

    Result<void> run(const Operation& operation, const RunTerms& terms) override {
        return run_collective(*lanes_, operation, algorithm_, terms);
    }

    Result<void> transfer(const Operation& operation, const RunTerms& terms) override {
        const auto peer = static_cast<std::size_t>(operation.peer);
        MUSTER_CHECK(peer < outgoing_.size() && operation.peer != group_->rank(), peer, outgoing_.size());
        return (operation.kind == OperationKind::send ? outgoing_ : incoming_)[peer].move(operation, terms);
    }

    Result<Incoming> incoming(int peer) override { return incoming_[static_cast<std::size_t>(peer)].incoming(); }

    Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms) override {
        // All ranks of this host look before any of them takes: each leaves room for all.
        const bool fits = available_memory_bytes() / static_cast<std::size_t>(group_->ranks_here()) > size_bytes;
        auto pages = std::make_shared<Pages>(fits ? size_bytes : 0);
        const bool got = fits && pages->bytes.data() != nullptr;
        MUSTER_TRY(agree_on_memory(*group_, *lanes_, size_bytes, got, terms));
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
    auto mesh = MUSTER_TRY(connect_mesh(terms, options.addresses, options.connections_per_peer, options.more_partners));
    auto group = MUSTER_TRY(TcpGroup::over(terms, std::move(mesh)));
    auto lanes = MUSTER_TRY(TcpLanes::over(*group));
    return TcpParts{.group = std::move(group), .lanes = std::move(lanes)};
}

std::unique_ptr<Transport> tcp_transport_over(TcpParts parts, TcpAlgorithm algorithm) {
    return std::make_unique<TcpTransport>(std::move(parts.group), std::move(parts.lanes), algorithm);
}

Result<void> agree_on_memory(const TcpGroup& group, TcpLanes& lanes, std::size_t size_bytes, bool got,
                             const RunTerms& terms) {
    CollectiveHeader header{.flags = CollectiveHeader::allocates, .count = size_bytes};
    if (!got) header.flags |= CollectiveHeader::lacks;
    const auto lacking = MUSTER_TRY(first_that_lacks(lanes, header, terms));
    if (lacking < 0) return {};
    return Error{
        Errc::limit_exceeded,
        cat("cannot reserve ", size_bytes >> 10, " KiB for communicator ", group.id(), ": ", group.who(lacking),
            " has too little memory; give the job more of it, or use smaller buckets or fewer ranks on a host")};
}

Result<std::unique_ptr<Transport>> make_tcp_transport(const GroupTerms& terms, const TcpOptions& options) {
    auto parts = MUSTER_TRY(connect_tcp(terms, options));
    auto transport = std::make_unique<TcpTransport>(std::move(parts.group), std::move(parts.lanes), options.algorithm);
    auto watch = terms.waits && !terms.is_part() ? options.watch : nullptr;
    if (transport->listens_later()) {
        watch = MUSTER_TRY(options.watch ? Result<std::shared_ptr<FdWatch>>(options.watch) : FdWatch::start());
    }
    if (watch) MUSTER_TRY(transport->answer_at_all_times(std::move(watch)));
    return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace muster::runtime
