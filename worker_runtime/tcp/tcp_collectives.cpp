#include "worker_runtime/tcp/tcp_collectives.h"

#include <cstring>
#include <utility>

#include "rendezvous/base/check.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_chain.h"
#include "worker_runtime/tcp/tcp_circle.h"
#include "worker_runtime/tcp/tcp_fold.h"
#include "worker_runtime/tcp/tcp_slices.h"
#include "worker_runtime/tcp/tcp_steps.h"
#include "worker_runtime/tcp/tcp_transfers.h"

namespace muster::runtime {

namespace {

using Opening = TcpLanes::Opening;

/// Its headers are all that a barrier needs. They may say that a rank lacks memory.
class Barrier final : public CollectivePlan {
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

/// all_gather and all_to_all: piece r of the output comes from rank r; what goes to rank r is the whole input, or its
/// piece r.
class Spread final : public CollectivePlan {
  public:
    Spread(const Operation& operation, std::size_t input_stride_bytes)
        : bytes_(operation.count * size_of(operation.type)),
          stride_(input_stride_bytes),
          input_(memory_at(operation.input)),
          output_(memory_at(operation.output)) {}

    void begin(TcpLanes& lanes) override {
        for (int peer = 0; peer < lanes.size(); ++peer) {
            if (peer == lanes.rank()) continue;
            lanes.send(peer, 0, {.base = input_of(peer), .size_bytes = bytes_});
            lanes.receive(peer, 0, {.base = output_of(peer), .size_bytes = bytes_});
        }
    }
    void agreed(TcpLanes& lanes) override {
        auto* const from = input_of(lanes.rank());
        auto* const to = output_of(lanes.rank());
        if (bytes_ > 0 && from != to) std::memcpy(to, from, bytes_);
    }

  private:
    [[nodiscard]] std::byte* input_of(int rank) const { return input_ + static_cast<std::size_t>(rank) * stride_; }
    [[nodiscard]] std::byte* output_of(int rank) const { return output_ + static_cast<std::size_t>(rank) * bytes_; }

    const std::size_t bytes_;
    const std::size_t stride_;
    std::byte* const input_;
    std::byte* const output_;
};

class SmallBroadcast final : public CollectivePlan {
  public:
    explicit SmallBroadcast(const Operation& operation)
        : root_(operation.peer),
          whole_{.base = memory_at(operation.output), .size_bytes = operation.count * size_of(operation.type)} {}

    void begin(TcpLanes& lanes) override {
        if (lanes.rank() != root_) return lanes.receive(root_, 0, whole_);
        for (int peer = 0; peer < lanes.size(); ++peer)
            if (peer != root_) lanes.send(peer, 0, whole_);
    }

  private:
    const int root_;
    const Cut whole_;
};

/// Slices go to all ranks but the root, each to one, which passes it on.
class LargeBroadcast final : public CollectivePlan {
  public:
    LargeBroadcast(const Operation& operation, int size)
        : root_(operation.peer),
          size_(size),
          data_(memory_at(operation.output)),
          slices_(operation.count, size_of(operation.type), size - 1) {}

    void begin(TcpLanes& lanes) override {
        for (int peer = 0; peer < size_; ++peer) {
            if (peer == lanes.rank() || peer == root_) continue;
            if (lanes.rank() == root_) {
                lanes.send(peer, 0, slice_of(peer));
            } else {
                lanes.send(peer, 1, slice_of(lanes.rank()), Opening::by_plan);
                lanes.receive(peer, 1, slice_of(peer));
            }
        }
        if (lanes.rank() != root_) lanes.receive(root_, 0, slice_of(lanes.rank()));
    }
    void received(TcpLanes& lanes, int /*from*/, int lane, std::size_t piece) override {
        if (lane != 0) return;
        for (int peer = 0; peer < size_; ++peer)
            if (peer != lanes.rank() && peer != root_) lanes.open_send(peer, 1, piece);
    }

  private:
    [[nodiscard]] Cut slice_of(int rank) const { return slices_.cut((rank - root_ - 1 + size_) % size_, data_); }

    const int root_;
    const int size_;
    std::byte* const data_;
    const Slices slices_;
};

Result<void> run_broadcast(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    const auto header = header_of(operation, 0);
    if (lanes.size() == 2 || operation.count * size_of(operation.type) <= small_broadcast_bytes_max) {
        SmallBroadcast plan(operation);
        return lanes.carry(plan, header, terms);
    }
    LargeBroadcast plan(operation, lanes.size());
    return lanes.carry(plan, header, terms);
}

bool goes_round(int size, const Operation& operation, TcpAlgorithm algorithm) {
    const std::size_t bytes = operation.count * size_of(operation.type);
    if (algorithm == TcpAlgorithm::direct || !can_chain(operation.type) || bytes == 0) return false;
    return algorithm == TcpAlgorithm::ring ||
           (size >= ring_ranks_min && bytes >= static_cast<std::size_t>(size) * ring_bytes_per_rank_min);
}

}  // namespace

Result<int> first_that_lacks(TcpLanes& lanes, const CollectiveHeader& header, const RunTerms& terms) {
    if (lanes.is_whole()) {
        Barrier plan;
        if (auto done = lanes.carry(plan, header, terms); !done) return done.error();
        return plan.lacking;
    }
    const bool lacks = (header.flags & CollectiveHeader::lacks) != 0;
    auto first = least_of_all(lanes, header, lacks ? lanes.rank() : lanes.size(), terms);
    return first && *first == lanes.size() ? Result<int>(-1) : first;
}

Result<PartsTable> learn_parts(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    PartsTable table(operation, lanes.rank(), lanes.size());
    Spread rows(table.exchange(), 0);
    if (auto known = lanes.carry(rows, header_of(operation, 0), terms); !known) return known.error();
    if (auto good = check_table(lanes, table); !good) return good.error();
    return table;
}

Result<void> move_parts(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    auto header = header_of(operation, 0);
    header.flags |= CollectiveHeader::continues;
    Transfers plan(operation, *operation.parts, lanes.rank());
    return lanes.carry(plan, header, terms);
}

Result<void> check_table(TcpLanes& lanes, const PartsTable& table) {
    if (const int rank = table.damaged(); rank >= 0) return lanes.refuse(rank, PartsTable::damage);
    auto text = table.contradiction([&](int rank) { return lanes.who(rank); });
    return text.empty() ? Result<void>() : contradiction_error(std::move(text));
}

Result<void> run_collective(TcpLanes& lanes, const Operation& operation, TcpAlgorithm algorithm,
                            const RunTerms& terms) {
    if (!lanes.is_whole()) return run_in_steps(lanes, operation, algorithm, terms);
    const std::size_t bytes = operation.count * size_of(operation.type);
    switch (operation.kind) {
        case OperationKind::barrier: {
            Barrier plan;
            return lanes.carry(plan, header_of(operation, 0), terms);
        }
        case OperationKind::all_gather: {
            Spread plan(operation, 0);
            return lanes.carry(plan, header_of(operation, 0), terms);
        }
        case OperationKind::all_to_all: {
            Spread plan(operation, bytes);
            return lanes.carry(plan, header_of(operation, 0), terms);
        }
        case OperationKind::broadcast: return run_broadcast(lanes, operation, terms);
        case OperationKind::gather:
        case OperationKind::scatter: {
            Transfers plan(operation, parts_of(operation, lanes.rank(), lanes.size()), lanes.rank());
            return lanes.carry(plan, header_of(operation, 0), terms);
        }
        case OperationKind::all_to_all_uneven: {
            const auto table = learn_parts(lanes, operation, terms);
            return table ? move_parts(lanes, operation, terms) : table.error();
        }
        case OperationKind::all_reduce:
            if (goes_round(lanes.size(), operation, algorithm))
                return run_chain(lanes, operation, own_place(lanes, operation), operation, terms);
            return run_reduction(lanes, operation, terms);
        case OperationKind::reduce:
        case OperationKind::reduce_scatter: return run_reduction(lanes, operation, terms);
        case OperationKind::send:
        case OperationKind::receive: break;
    }
    MUSTER_CHECK(false, name(operation.kind));
    return {};
}

}  // namespace muster::runtime
