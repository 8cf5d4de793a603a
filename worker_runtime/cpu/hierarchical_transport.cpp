#include "worker_runtime/cpu/hierarchical_transport.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/cpu/shared_group.h"
#include "worker_runtime/cpu/shared_memory_transport.h"
#include "worker_runtime/cpu/tcp_chain.h"
#include "worker_runtime/cpu/tcp_limits.h"
#include "worker_runtime/cpu/tcp_parts.h"
#include "worker_runtime/cpu/tcp_slices.h"
#include "worker_runtime/engine/gradient_math.h"

namespace muster::runtime {

namespace {

/// Memory that goes from some ranks to others; all the rest only agree.
class Transfers final : public CollectivePlan {
  public:
    void send(int to, void* data, std::size_t bytes) { sends_.push_back({to, cut_of(data, bytes)}); }
    void receive(int from, void* data, std::size_t bytes) { receives_.push_back({from, cut_of(data, bytes)}); }

    void begin(TcpLanes& lanes) override {
        for (const auto& one : sends_) lanes.send(one.peer, 0, one.cut);
        for (const auto& one : receives_) lanes.receive(one.peer, 0, one.cut);
    }

  private:
    struct One {
        int peer;
        Cut cut;
    };
    static Cut cut_of(void* data, std::size_t bytes) {
        return {.base = static_cast<std::byte*>(data), .size_bytes = bytes, .piece_bytes = piece_bytes_for(bytes)};
    }
    std::vector<One> sends_;
    std::vector<One> receives_;
};

class HierarchicalTransport final : public Transport {
  public:
    /// `node` is null where this rank is alone on its node.
    HierarchicalTransport(NodeLayout layout, TcpParts parts, std::unique_ptr<SharedGroup> node,
                          std::shared_ptr<FdWatch> watch)
        : layout_(std::move(layout)),
          tcp_(*parts.group),
          lanes_(*parts.lanes),
          node_(node.get()),
          node_number_(layout_.node_of(parts.group->rank())),
          watch_(std::move(watch)),
          over_tcp_(tcp_transport_over(std::move(parts), TcpAlgorithm::automatic)) {
        if (node) on_node_ = shared_memory_transport_over(std::move(node));
    }
    ~HierarchicalTransport() override {
        for (const auto id : watched_) watch_->remove(id);
    }

    /// While the ranks of this node wait for each other in their memory, nobody looks at TCP: then the watch does.
    Result<void> watch_all() {
        if (node_ == nullptr) return {};
        const auto everywhere = [first = layout_.first_of(node_number_)](std::vector<int> ranks) {
            for (int& rank : ranks) rank += first;
            return ranks;
        };
        tcp_.also_waits_for([this, everywhere] { return everywhere(node_->awaited()); });
        node_->ask_whom_to_blame([this, everywhere](const std::vector<int>& late) -> Result<std::string> {
            const auto guilty = tcp_.trace(everywhere(late), 0);
            return guilty ? Result<std::string>(tcp_.who(*guilty)) : guilty.error();
        });
        for (int rank = 0; rank < tcp_.size(); ++rank) {
            if (rank == tcp_.rank()) continue;
            auto id = watch_->add(tcp_.peer(rank).control, [this, rank] {
                const auto over = tcp_.hear_or_lose(rank);
                if (!over) node_->fail(over.error().code, over.error().context);
                return over && !*over;
            });
            if (!id) return id.error();
            watched_.push_back(*id);
        }
        return {};
    }

    [[nodiscard]] std::string_view name() const override { return "hierarchical"; }

    Result<void> run(const Operation& operation, const RunTerms& terms) override {
        if (!goes_by_nodes(operation)) return tell_node(over_tcp_->run(operation, terms));
        if (operation.kind == OperationKind::broadcast) return broadcast_by_nodes(operation, terms);
        if (operation.kind == OperationKind::all_gather) return gather_by_nodes(operation, terms);
        const std::size_t element = muster::size_of(operation.type);
        const std::size_t chunk = by_nodes_chunk_bytes / std::max(element, sizeof(float));
        for (std::size_t done = 0; done < operation.count; done += chunk) {
            Operation part = operation;
            part.count = std::min(chunk, operation.count - done);
            part.input = part.output = static_cast<std::byte*>(operation.output) + done * element;
            if (auto reduced = reduce_by_nodes(part, terms); !reduced) return reduced;
        }
        return {};
    }

    Result<void> transfer(const Operation& operation, const RunTerms& terms) override {
        if (node_ == nullptr || layout_.node_of(operation.peer) != node_number_)
            return tell_node(over_tcp_->transfer(operation, terms));
        Operation inside = operation;
        inside.peer -= layout_.first_of(node_number_);
        return tell_others(on_node_->transfer(inside, terms));
    }

    Result<Memory> allocate(std::size_t size_bytes, const RunTerms& terms) override {
        if (node_ == nullptr) return over_tcp_->allocate(size_bytes, terms);
        auto memory = node_->allocate(size_bytes, terms);
        if (!memory) return tcp_.fail(memory.error().code, memory.error().context);
        auto agreed = tell_node(agree_on_memory(tcp_, lanes_, size_bytes, true, terms));
        return agreed ? std::move(memory) : agreed.error();
    }

    void abort(std::string_view why) override {
        over_tcp_->abort(why);
        if (node_ != nullptr) on_node_->abort(why);
    }

  private:
    /// What ended the one group ends the other.
    Result<void> tell_node(Result<void> result) {
        if (!result && node_ != nullptr) node_->fail(result.error().code, result.error().context);
        return result;
    }
    Result<void> tell_others(Result<void> result) {
        if (!result) return tcp_.fail(result.error().code, result.error().context);
        return result;
    }

    /// The same on all ranks, whatever memory each of them uses.
    [[nodiscard]] bool goes_by_nodes(const Operation& operation) const {
        switch (operation.kind) {
            case OperationKind::all_reduce:
                if (!can_chain(operation.type) && tcp_.size() < by_nodes_half_ranks_min * layout_.node_count())
                    return false;
                return bytes_of(operation) >= by_nodes_bytes_min;
            case OperationKind::broadcast: return bytes_of(operation) >= by_nodes_bytes_min;
            case OperationKind::all_gather:
                return bytes_of(operation) * static_cast<std::size_t>(tcp_.size()) >= by_nodes_bytes_min;
            default: return false;
        }
    }
    [[nodiscard]] int leader_of(int node) const { return layout_.first_of(node); }
    [[nodiscard]] bool leads() const { return tcp_.rank() == leader_of(node_number_); }

    /// From the root to the first rank of every other node, and on each node through its memory.
    Result<void> broadcast_by_nodes(const Operation& operation, const RunTerms& terms) {
        const std::size_t bytes = bytes_of(operation);
        const int root_node = layout_.node_of(operation.peer);
        Transfers plan;
        if (tcp_.rank() == operation.peer) {
            for (int node = 0; node < layout_.node_count(); ++node)
                if (node != root_node) plan.send(leader_of(node), operation.output, bytes);
        } else if (leads() && node_number_ != root_node) {
            plan.receive(operation.peer, operation.output, bytes);
        }
        if (auto moved = tell_node(lanes_.carry(plan, header_of(operation, 0), terms)); !moved) return moved;
        const int from = node_number_ == root_node ? operation.peer - leader_of(node_number_) : 0;
        return spread_on_node(operation, operation.output, operation.count, from, terms);
    }

    /// Each node gathers its own ranks' pieces, first ranks exchange them whole, and spread what has come.
    Result<void> gather_by_nodes(const Operation& operation, const RunTerms& terms) {
        const std::size_t bytes = bytes_of(operation);
        const auto block = [&](int node) {
            return static_cast<std::byte*>(operation.output) + static_cast<std::size_t>(leader_of(node)) * bytes;
        };
        const auto ranks_on = [this](int node) { return static_cast<std::size_t>(layout_.size_of(node)); };
        if (node_ != nullptr) {
            Operation inside = operation;
            inside.output = block(node_number_);
            if (auto gathered = tell_others(on_node_->run(inside, terms)); !gathered) return gathered;
        } else if (operation.input != block(node_number_)) {
            std::memcpy(block(node_number_), operation.input, bytes);
        }
        Transfers plan;
        for (int node = 0; leads() && node < layout_.node_count(); ++node) {
            if (node == node_number_) continue;
            plan.send(leader_of(node), block(node_number_), ranks_on(node_number_) * bytes);
            plan.receive(leader_of(node), block(node), ranks_on(node) * bytes);
        }
        if (auto moved = tell_node(lanes_.carry(plan, header_of(operation, 0), terms)); !moved) return moved;
        const auto before = static_cast<std::size_t>(leader_of(node_number_));
        const auto after = static_cast<std::size_t>(tcp_.size()) - before - ranks_on(node_number_);
        if (auto spread = spread_on_node(operation, operation.output, before * operation.count, 0, terms); !spread)
            return spread;
        auto* const behind = block(node_number_) + ranks_on(node_number_) * bytes;
        return spread_on_node(operation, behind, after * operation.count, 0, terms);
    }

    /// A broadcast among the ranks of this node, of `count` elements at `data`, from the one that is its number `from`.
    Result<void> spread_on_node(const Operation& operation, void* data, std::size_t count, int from,
                                const RunTerms& terms) {
        if (node_ == nullptr || count == 0) return {};
        Operation inside = operation;
        inside.kind = OperationKind::broadcast;
        inside.input = inside.output = data;
        inside.count = count;
        inside.peer = from;
        return tell_others(on_node_->run(inside, terms));
    }

    /// 16-bit types are carried as f32, so that they are rounded once, at the end.
    Result<void> reduce_by_nodes(const Operation& operation, const RunTerms& terms) {
        Operation carried = operation;
        std::vector<void*> memory{operation.output};
        if (node_ != nullptr) {
            if (auto met = tell_others(node_->meet(operation, false, terms)); !met) return met;
            memory = node_->common_memory();
        }
        const bool staged = memory.empty() || !can_chain(operation.type);
        if (staged) {
            if (auto copied = tell_others(stage(carried, terms)); !copied) return copied;
            memory = node_ != nullptr ? node_->common_memory() : std::vector<void*>{carried.output};
            MUSTER_CHECK(!memory.empty(), carried.count);
        }
        const auto place = place_in(carried, std::move(memory));
        auto done = tell_node(run_chain(lanes_, carried, place, operation.type, terms));
        if (done && node_ != nullptr) done = tell_others(node_->step(terms));
        if (done && staged) copy_elements(carried, operation);
        return done;
    }

    /// Makes `operation` one on memory that the node's ranks share, with the elements in it.
    Result<void> stage(Operation& operation, const RunTerms& terms) {
        const Operation given = operation;
        if (!can_chain(operation.type)) operation.type = DataType::f32;
        const std::size_t bytes = bytes_of(operation);
        if (node_ == nullptr) {
            if (own_staging_.size() < bytes) own_staging_.resize(bytes);
            operation.output = own_staging_.data();
        } else {
            if (staging_.size_bytes() < bytes) {
                auto memory = node_->allocate(std::bit_ceil(bytes), terms);
                if (!memory) return memory.error();
                staging_ = std::move(*memory);
            }
            operation.output = staging_.data();
        }
        operation.input = operation.output;
        copy_elements(given, operation);
        return node_ != nullptr ? node_->meet(operation, false, terms) : Result<void>();
    }

    static void copy_elements(const Operation& from, const Operation& to) {
        if (from.type == to.type)
            std::memcpy(to.output, from.output, bytes_of(from));
        else
            convert({from.output, from.count, from.type}, {to.output, to.count, to.type});
    }

    [[nodiscard]] static std::size_t bytes_of(const Operation& operation) {
        return operation.count * muster::size_of(operation.type);
    }

    /// This rank's part of the work: its slice of every rank's memory on this node, or none.
    [[nodiscard]] ChainPlace place_in(const Operation& operation, std::vector<void*> memory) const {
        const int first = layout_.first_of(node_number_);
        const int number = tcp_.rank() - first;
        const int slices = layout_.smallest();
        ChainPlace place{.memory = std::move(memory), .first_rank = first, .own = static_cast<std::size_t>(number)};
        if (number >= slices) return place;
        const Slices cut(operation.count, muster::size_of(operation.type), slices);
        const std::size_t begin = cut.begin_bytes(number);
        place.bytes = cut.begin_bytes(number + 1) - begin;
        for (auto& one : place.memory) one = static_cast<std::byte*>(one) + begin;
        if (node_number_ > 0) place.previous = layout_.first_of(node_number_ - 1) + number;
        if (node_number_ + 1 < layout_.node_count()) place.next = layout_.first_of(node_number_ + 1) + number;
        return place;
    }

    const NodeLayout layout_;
    TcpGroup& tcp_;
    TcpLanes& lanes_;
    SharedGroup* const node_;
    const int node_number_;
    const std::shared_ptr<FdWatch> watch_;
    std::vector<std::uint64_t> watched_;
    std::unique_ptr<Transport> over_tcp_;  ///< between all ranks; owns tcp_ and lanes_
    std::unique_ptr<Transport> on_node_;   ///< between this node's; owns node_
    Memory staging_;                       ///< for elements that are not in memory of the node, or are carried as f32
    std::vector<std::byte> own_staging_;   ///< the same, where this rank is alone on its node
};

}  // namespace

Result<std::unique_ptr<Transport>> make_hierarchical_transport(const GroupTerms& terms, const TcpOptions& options,
                                                               LocalDoor door, std::vector<LocalIdentity> identities,
                                                               NodeLayout layout, std::shared_ptr<FdWatch> watch) {
    const auto deadline = std::chrono::steady_clock::now() + terms.meeting_timeout;
    auto parts = connect_tcp(terms, options);
    if (!parts) return parts.error();
    const int node = layout.node_of(terms.rank);
    std::unique_ptr<SharedGroup> shared;
    if (layout.size_of(node) > 1) {
        GroupTerms local = terms;
        local.rank = terms.rank - layout.first_of(node);
        local.size = layout.size_of(node);
        const auto first = identities.begin() + layout.first_of(node);
        auto formed = SharedGroup::form(local, std::move(door), {first, first + local.size}, watch, deadline);
        if (!formed) return parts->group->fail(formed.error().code, formed.error().context);
        shared = std::move(*formed);
    }
    auto transport = std::make_unique<HierarchicalTransport>(std::move(layout), std::move(*parts), std::move(shared),
                                                             std::move(watch));
    if (auto watched = transport->watch_all(); !watched) return watched.error();
    return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace muster::runtime
