#include "worker_runtime/shared_memory/shared_memory_transport.h"

#include <optional>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/shared_memory/shared_channel.h"
#include "worker_runtime/shared_memory/shared_collectives.h"
#include "worker_runtime/shared_memory/shared_group.h"
#include "worker_runtime/transport/wait_board.h"

namespace muster::runtime {

namespace {

class SharedMemoryTransport final : public Transport {
  public:
    explicit SharedMemoryTransport(std::unique_ptr<SharedGroup> group) : group_(std::move(group)) {
        for (int rank = 0; rank < group_->size(); ++rank) {
            outgoing_.emplace_back(*group_, group_->rank(), rank);
            incoming_.emplace_back(*group_, rank, group_->rank());
        }
    }

    /// A part of another communicator tells there whom it waits for, and asks there whom to blame.
    void join(const GroupTerms& terms) {
        if (!terms.waits || !terms.is_part()) return;
        entry_.emplace(terms.waits, [group = group_.get(), terms] { return terms.in_root(group->awaited()); });
        group_->set_failure_query(
            [group = group_.get(), terms](const std::vector<int>& late, auto) -> Result<std::string> {
                const auto failed_ranks = terms.waits->trace(terms.in_root(late));
                if (!failed_ranks) return group->who(late);
                return *failed_ranks ? Result<std::string>((*failed_ranks)->names) : failed_ranks->error();
            });
    }

    [[nodiscard]] std::string_view name() const override { return "shared memory"; }

    Result<void> run(const Operation& operation, const RunTerms& terms) override {
        return run_collective(*group_, operation, terms);
    }

    Result<void> transfer(const Operation& operation, const RunTerms& terms) override {
        const auto peer = static_cast<std::size_t>(operation.peer);
        MUSTER_CHECK(peer < outgoing_.size(), peer, outgoing_.size());
        return operation.kind == OperationKind::send ? outgoing_[peer].send(operation, terms)
                                                     : incoming_[peer].receive(operation, terms);
    }

    Result<Incoming> incoming(int peer) override { return incoming_[static_cast<std::size_t>(peer)].incoming(); }

    Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms) override {
        return group_->allocate(size_bytes, terms);
    }

    Result<void> check_alive(Instant /*since*/) override { return group_->check_alive(); }

    Error fail(const Error& error) override { return group_->fail(error.code, error.context); }

    void abort(std::string_view why) override {
        group_->fail(Errc::cancelled, cat(group_->who(group_->rank()), " aborted: ", why));
    }

  private:
    std::unique_ptr<SharedGroup> group_;
    std::vector<SharedChannel> outgoing_;  ///< to each rank
    std::vector<SharedChannel> incoming_;  ///< from each rank
    std::optional<WaitEntry> entry_;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_shared_memory_transport(const GroupTerms& terms, LocalDoor door,
                                                                std::vector<LocalIdentity> identities,
                                                                std::shared_ptr<FdWatch> watch) {
    auto group = MUSTER_TRY(
        SharedGroup::form(terms, std::move(door), std::move(identities), std::move(watch), terms.meeting_wait()));
    auto transport = std::make_unique<SharedMemoryTransport>(std::move(group));
    transport->join(terms);
    return std::unique_ptr<Transport>(std::move(transport));
}

std::unique_ptr<Transport> shared_memory_transport_over(std::unique_ptr<SharedGroup> group) {
    return std::make_unique<SharedMemoryTransport>(std::move(group));
}

}  // namespace muster::runtime
