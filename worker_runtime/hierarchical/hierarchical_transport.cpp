#include "worker_runtime/hierarchical/hierarchical_transport.h"

#include <cstring>
#include <utility>

#include "worker_runtime/core/parts_table.h"
#include "worker_runtime/hierarchical/node_reduction.h"
#include "worker_runtime/shared_memory/shared_group.h"
#include "worker_runtime/shared_memory/shared_memory_transport.h"
#include "worker_runtime/tcp/control_watch.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_circle.h"
#include "worker_runtime/tcp/tcp_collectives.h"
#include "worker_runtime/tcp/tcp_parts.h"
#include "worker_runtime/tcp/tcp_transfers.h"

namespace muster::runtime {

namespace {

class HierarchicalTransport final : public Transport {
  public:
    /// `node` is null if this rank is alone on its node.
    HierarchicalTransport(NodeLayout layout, TcpParts parts, std::unique_ptr<SharedGroup> node,
                          std::shared_ptr<FdWatch> watch)
        : groups_{.layout = layout,
                  .tcp = *parts.group,
                  .lanes = *parts.lanes,
                  .node = node.get(),
                  .number = layout.node_of(parts.group->rank())},
          leaders_{.ranks = {layout.begins.begin(), layout.begins.end() - 1}, .own = leads() ? groups_.number : -1},
          over_tcp_(tcp_transport_over(std::move(parts), TcpAlgorithm::automatic)),
          ears_(groups_.tcp, std::move(watch)) {
        if (node) on_node_ = shared_memory_transport_over(std::move(node));
    }
    ~HierarchicalTransport() override { groups_.tcp.also_waits_for(nullptr); }

    /// Starts a watch that reads from TCP while the ranks of this node wait for each other in shared memory.
    Result<void> watch_all() {
        if (groups_.node != nullptr) trace_across_nodes();
        const auto failed = [this](const Error& why) {
            if (groups_.node != nullptr) groups_.node->fail(why.code, why.context);
        };
        auto begun = ears_.begin(
            [this, failed](int rank) {
                const auto over = groups_.tcp.receive_or_lose(rank);
                if (!over) failed(over.error());
                return over && !*over;
            },
            failed);
        if (begun) groups_.tcp.trace_for_parts();
        return begun;
    }

    /// Makes other nodes learn what ranks of this node wait for in shared memory, and traces failed ranks across nodes:
    /// of a collective, all ranks that are missing on any node.
    void trace_across_nodes() {
        const auto everywhere = [first = groups_.layout.first_of(groups_.number)](std::vector<int> ranks) {
            for (int& rank : ranks) rank += first;
            return ranks;
        };
        groups_.tcp.also_waits_for([this, everywhere] { return everywhere(groups_.node->awaited()); });
        groups_.node->set_failure_query([this, everywhere](const auto& late, auto what) -> Result<std::string> {
            const bool all_needed = what == SharedGroup::WaitIn::collective;
            const auto failed_ranks = groups_.tcp.trace(
                everywhere(late), 0, all_needed ? TcpGroup::Witnesses::all : TcpGroup::Witnesses::none);
            return failed_ranks ? Result<std::string>(failed_ranks->names) : failed_ranks.error();
        });
    }

    [[nodiscard]] std::string_view name() const override { return "hierarchical"; }

    Result<void> run(const Operation& operation, const RunTerms& terms) override {
        if (operation.kind == OperationKind::all_to_all_uneven && groups_.lanes.is_whole())
            return exchange_parts(operation, terms);
        if (!goes_by_nodes(operation)) {
            MUSTER_TRY(announce(operation));
            return failed_or_contradicts(operation, over_tcp_->run(operation, terms));
        }
        if (operation.kind == OperationKind::broadcast) return broadcast_by_nodes(operation, terms);
        if (operation.kind == OperationKind::all_gather) return gather_by_nodes(operation, terms);
        if (operation.kind == OperationKind::all_to_all) return exchange_by_nodes(operation, terms);
        if (operation.kind == OperationKind::all_reduce) return reduction_.all_reduce(operation, terms);
        return reduction_.keep_piece(operation, terms);
    }

    Result<void> transfer(const Operation& operation, const RunTerms& terms) override {
        if (groups_.node == nullptr || groups_.layout.node_of(operation.peer) != groups_.number)
            return groups_.fail_node_on_error(over_tcp_->transfer(operation, terms));
        Operation inside = operation;
        inside.peer -= groups_.layout.first_of(groups_.number);
        return groups_.fail_tcp_on_error(on_node_->transfer(inside, terms));
    }

    Result<Incoming> incoming(int peer) override {
        if (groups_.node == nullptr || groups_.layout.node_of(peer) != groups_.number) return over_tcp_->incoming(peer);
        return on_node_->incoming(peer - groups_.layout.first_of(groups_.number));
    }

    Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms) override {
        if (groups_.node == nullptr) return over_tcp_->allocate(size_bytes, terms);
        auto memory = groups_.node->allocate(size_bytes, terms);
        if (!memory && memory.error().code != Errc::limit_exceeded)
            return groups_.tcp.fail(memory.error().code, memory.error().context);
        // If memory is too small on any node, the groups stay usable: all ranks learn of it and release theirs.
        auto agreed = agree_on_memory(groups_.tcp, groups_.lanes, size_bytes, memory.has_value(), terms);
        if (!agreed && agreed.error().code != Errc::limit_exceeded)
            return groups_.fail_node_on_error(std::move(agreed)).error();
        return agreed || !memory ? std::move(memory) : agreed.error();
    }

    Result<void> check_alive(Instant since) override {
        if (groups_.node == nullptr) return over_tcp_->check_alive(since);
        MUSTER_TRY(groups_.fail_tcp_on_error(groups_.node->check_alive()));
        return groups_.fail_node_on_error(over_tcp_->check_alive(since));
    }

    Error fail(const Error& error) override {
        const Error first = over_tcp_->fail(error);
        return groups_.fail_node_on_error(first).error();
    }

    void abort(std::string_view why) override {
        over_tcp_->abort(why);
        if (groups_.node != nullptr) on_node_->abort(why);
    }

  private:
    /// Decides whether nodes exchange data once for all their ranks. Equal on all ranks, whatever memory they use.
    [[nodiscard]] bool goes_by_nodes(const Operation& operation) const {
        switch (operation.kind) {
            case OperationKind::all_reduce:
            case OperationKind::reduce:
            case OperationKind::reduce_scatter: return reduction_.pays(operation);
            case OperationKind::broadcast: return bytes_of(operation) >= by_nodes_bytes_min;
            case OperationKind::all_to_all:
                // Pieces that travel over other ranks need not leave the node's out.
                if (!groups_.lanes.is_whole()) return false;
                [[fallthrough]];
            case OperationKind::all_gather:
                return bytes_of(operation) * static_cast<std::size_t>(groups_.tcp.size()) >= by_nodes_bytes_min;
            default: return false;
        }
    }
    /// Announces an operation over TCP to this node's ranks, one of which may wait in memory for another operation.
    Result<void> announce(const Operation& operation) {
        return groups_.node == nullptr ? Result<void>() : groups_.fail_tcp_on_error(groups_.node->announce(operation));
    }
    [[nodiscard]] int leader_of(int node) const { return groups_.layout.first_of(node); }
    [[nodiscard]] bool leads() const { return groups_.tcp.rank() == leader_of(groups_.number); }

    /// The root sends to the first rank of every other node; each node then broadcasts in shared memory.
    Result<void> broadcast_by_nodes(const Operation& operation, const RunTerms& terms) {
        const std::size_t bytes = bytes_of(operation);
        const int root_node = groups_.layout.node_of(operation.peer);
        if (!groups_.lanes.is_whole()) return broadcast_among_leaders(operation, root_node, terms);
        MUSTER_TRY(announce(operation));
        Transfers plan;
        if (groups_.tcp.rank() == operation.peer) {
            for (int node = 0; node < groups_.layout.node_count(); ++node)
                if (node != root_node) plan.send(leader_of(node), operation.output, bytes);
        } else if (leads() && groups_.number != root_node) {
            plan.receive(operation.peer, operation.output, bytes);
        }
        MUSTER_TRY(groups_.fail_node_on_error(groups_.lanes.carry(plan, header_of(operation, 0), terms)));
        const int from = groups_.number == root_node ? operation.peer - leader_of(groups_.number) : 0;
        return spread_on_node(operation, operation.output, operation.count, from, terms);
    }

    /// The root's node has it first, then the first ranks of all nodes, which are partners of each other.
    Result<void> broadcast_among_leaders(const Operation& operation, int root_node, const RunTerms& terms) {
        const bool at_root = groups_.number == root_node;
        const auto spread = [&] {
            const int from = at_root ? operation.peer - leader_of(root_node) : 0;
            return spread_on_node(operation, operation.output, operation.count, from, terms);
        };
        if (!at_root) MUSTER_TRY(announce(operation));
        if (at_root) MUSTER_TRY(spread());
        auto* const data = static_cast<std::byte*>(operation.output);
        MUSTER_TRY(groups_.fail_node_on_error(broadcast_round(groups_.lanes, leaders_, root_node, data,
                                                              bytes_of(operation), header_of(operation, 0), terms)));
        return at_root ? Result<void>() : spread();
    }

    /// Each node gathers its ranks' pieces, the first ranks exchange them, and each node broadcasts the others'.
    Result<void> gather_by_nodes(const Operation& operation, const RunTerms& terms) {
        const std::size_t bytes = bytes_of(operation);
        const auto block = [&](int node) {
            return static_cast<std::byte*>(operation.output) + static_cast<std::size_t>(leader_of(node)) * bytes;
        };
        const auto ranks_on = [this](int node) { return static_cast<std::size_t>(groups_.layout.size_of(node)); };
        if (groups_.node != nullptr) {
            Operation inside = operation;
            inside.output = block(groups_.number);
            MUSTER_TRY(groups_.fail_tcp_on_error(on_node_->run(inside, terms)));
        } else if (operation.input != block(groups_.number)) {
            std::memcpy(block(groups_.number), operation.input, bytes);
        }
        MUSTER_TRY(groups_.fail_node_on_error(gather_among_leaders(operation, terms)));
        const auto before = static_cast<std::size_t>(leader_of(groups_.number));
        const auto after = static_cast<std::size_t>(groups_.tcp.size()) - before - ranks_on(groups_.number);
        MUSTER_TRY(spread_on_node(operation, operation.output, before * operation.count, 0, terms));
        auto* const behind = block(groups_.number) + ranks_on(groups_.number) * bytes;
        return spread_on_node(operation, behind, after * operation.count, 0, terms);
    }

    /// `operation.output` has the pieces of this node, and gets those of all.
    Result<void> gather_among_leaders(const Operation& operation, const RunTerms& terms) {
        auto* const data = static_cast<std::byte*>(operation.output);
        std::vector<std::size_t> begins;
        for (const int first : groups_.layout.begins)
            begins.push_back(static_cast<std::size_t>(first) * bytes_of(operation));
        if (!groups_.lanes.is_whole())
            return gather_round(groups_.lanes, leaders_, data, begins, nullptr, header_of(operation, 0), terms);
        Transfers plan;
        const auto block = [&](int node) { return data + begins[static_cast<std::size_t>(node)]; };
        const auto size = [&](int node) { return static_cast<std::size_t>(block(node + 1) - block(node)); };
        for (int node = 0; leads() && node < groups_.layout.node_count(); ++node) {
            if (node == groups_.number) continue;
            plan.send(leader_of(node), block(groups_.number), size(groups_.number));
            plan.receive(leader_of(node), block(node), size(node));
        }
        return groups_.lanes.carry(plan, header_of(operation, 0), terms);
    }

    /// Pieces for ranks of this node go through shared memory. All others are sent directly to their ranks, because
    /// each must cross between nodes once anyway.
    Result<void> exchange_by_nodes(const Operation& operation, const RunTerms& terms) {
        const std::size_t bytes = bytes_of(operation);
        const auto input = [&](int rank) {
            return static_cast<std::byte*>(const_cast<void*>(operation.input)) + static_cast<std::size_t>(rank) * bytes;
        };
        const auto output = [&](int rank) {
            return static_cast<std::byte*>(operation.output) + static_cast<std::size_t>(rank) * bytes;
        };
        const int first = leader_of(groups_.number);
        if (groups_.node != nullptr) {
            Operation inside = operation;
            inside.input = input(first);
            inside.output = output(first);
            MUSTER_TRY(groups_.fail_tcp_on_error(on_node_->run(inside, terms)));
        } else {
            std::memcpy(output(first), input(first), bytes);
        }
        Transfers plan;
        for (int rank = 0; rank < groups_.tcp.size(); ++rank) {
            if (groups_.layout.node_of(rank) == groups_.number) continue;
            plan.send(rank, input(rank), bytes);
            plan.receive(rank, output(rank), bytes);
        }
        return groups_.fail_node_on_error(groups_.lanes.carry(plan, header_of(operation, 0), terms));
    }

    /// Equal parts are an all_to_all, which sends less over TCP; the ranks know it after they have compared their
    /// counts.
    Result<void> exchange_parts(const Operation& operation, const RunTerms& terms) {
        MUSTER_TRY(announce(operation));
        const auto table = learn_parts(groups_.lanes, operation, terms);
        if (!table) return failed_or_contradicts(operation, table.error());
        Operation even = operation;
        even.kind = OperationKind::all_to_all;
        even.parts.reset();
        even.count = operation.parts->sent[0].count;
        if (table->is_even() && goes_by_nodes(even)) return exchange_by_nodes(even, terms);
        return groups_.fail_node_on_error(move_parts(groups_.lanes, operation, terms));
    }

    Result<void> failed_or_contradicts(const Operation& operation, Result<void> done) {
        if (!done && may_be_contradiction(operation, done.error()) && groups_.tcp.check_alive()) return done;
        return groups_.fail_node_on_error(std::move(done));
    }

    /// Broadcasts `count` elements at `data` among the ranks of this node. `from` is the root's number on the node.
    Result<void> spread_on_node(const Operation& operation, void* data, std::size_t count, int from,
                                const RunTerms& terms) {
        if (groups_.node == nullptr || count == 0) return {};
        Operation inside = operation;
        inside.kind = OperationKind::broadcast;
        inside.input = inside.output = data;
        inside.count = count;
        inside.peer = from;
        return groups_.fail_tcp_on_error(on_node_->run(inside, terms));
    }

    const NodeGroups groups_;
    const TcpCircle leaders_;              ///< The first rank of each node.
    std::unique_ptr<Transport> over_tcp_;  ///< Between all ranks. Owns groups_.tcp and lanes.
    std::unique_ptr<Transport> on_node_;   ///< Between the ranks of this node. Owns groups_.node.
    NodeReduction reduction_{groups_};
    ControlWatch ears_;  ///< Declared last, because it calls the groups.
};

}  // namespace

Result<std::unique_ptr<Transport>> make_hierarchical_transport(const GroupTerms& terms, const TcpOptions& options,
                                                               LocalDoor door, std::vector<LocalIdentity> identities,
                                                               NodeLayout layout, std::shared_ptr<FdWatch> watch) {
    const auto wait = terms.meeting_wait();
    TcpOptions with_partners = options;
    with_partners.more_partners = layout.partners_of(terms.rank);
    auto parts = MUSTER_TRY(connect_tcp(terms, with_partners));
    const int node = layout.node_of(terms.rank);
    std::unique_ptr<SharedGroup> shared;
    if (layout.size_of(node) > 1) {
        GroupTerms local = terms;
        local.rank = terms.rank - layout.first_of(node);
        local.size = layout.size_of(node);
        local.root_ranks.clear();  // the TCP group reports for both
        const auto first = identities.begin() + layout.first_of(node);
        auto formed = SharedGroup::form(local, std::move(door), {first, first + local.size}, watch, wait);
        if (!formed) return parts.group->fail(formed.error().code, formed.error().context);
        shared = std::move(*formed);
    }
    auto transport = std::make_unique<HierarchicalTransport>(std::move(layout), std::move(parts), std::move(shared),
                                                             std::move(watch));
    MUSTER_TRY(transport->watch_all());
    return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace muster::runtime
