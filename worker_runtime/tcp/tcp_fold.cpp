#include "worker_runtime/tcp/tcp_fold.h"

#include <algorithm>
#include <array>
#include <vector>

#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_slices.h"
#include "worker_runtime/tcp/tcp_summation.h"

namespace muster::runtime {

namespace {

using Opening = TcpLanes::Opening;

/// Does `rank` get what is reduced?
bool gets_result(const Operation& operation, int rank) {
    return operation.kind != OperationKind::reduce || rank == operation.peer;
}

std::byte* input_of(const Operation& operation) {
    return static_cast<std::byte*>(const_cast<void*>(operation.input));
}

/// Everybody sends all to all, or to the root. The result overwrites what was sent, so it waits until all of that has
/// gone.
class SmallAllReduce final : public CollectivePlan {
  public:
    explicit SmallAllReduce(const Operation& operation)
        : operation_(operation),
          summation_(operation),
          bytes_(operation.count * size_of(operation.type)),
          stride_((bytes_ + 63) / 64 * 64),
          data_(input_of(operation)) {}

    void begin(TcpLanes& lanes) override {
        const bool takes = gets_result(operation_, lanes.rank());
        if (takes) scratch_ = lanes.scratch(stride_ * static_cast<std::size_t>(lanes.size()));
        for (int peer = 0; peer < lanes.size(); ++peer) {
            if (peer == lanes.rank()) continue;
            if (gets_result(operation_, peer)) lanes.send(peer, 0, {.base = data_, .size_bytes = bytes_});
            if (takes) lanes.receive(peer, 0, {.base = scratch_of(peer), .size_bytes = bytes_}, Opening::at_once);
        }
    }
    void agreed(TcpLanes& lanes) override { summation_.receive_weights(lanes); }
    void finished(TcpLanes& lanes) override {
        if (!gets_result(operation_, lanes.rank())) return;
        std::vector<const void*> inputs;
        for (int rank = 0; rank < lanes.size(); ++rank)
            inputs.push_back(rank == lanes.rank() ? data_ : scratch_of(rank));
        summation_.sum(inputs, static_cast<std::byte*>(operation_.output), bytes_);
    }

  private:
    [[nodiscard]] std::byte* scratch_of(int rank) const { return scratch_ + static_cast<std::size_t>(rank) * stride_; }

    const Operation& operation_;
    TcpSummation summation_;
    const std::size_t bytes_;
    const std::size_t stride_;
    std::byte* const data_;
    std::byte* scratch_ = nullptr;
};

/// The others' parts of this rank's slice come into a ring of scratch memory, piece by piece. A piece that is there
/// from all ranks is summed at once, while its bytes are in the cache, and its place in the ring is free for a later
/// one. A rank that lags stops what the others send to this one, and that alone: their results travel on the other
/// lane.
class Fold : public CollectivePlan {
  public:
    Fold(const Operation& operation, int size) : summation_(operation), inputs_(static_cast<std::size_t>(size)) {}

    /// Not before: a piece may come on another connection than the header with its rank's weight.
    void agreed(TcpLanes& lanes) override {
        summation_.receive_weights(lanes);
        for (std::size_t piece = 0; piece < std::min(fold_ring_pieces, own_.count()); ++piece) open(lanes, piece);
    }

    void received(TcpLanes& lanes, int /*from*/, int lane, std::size_t piece) override {
        if (lane != 0) return;
        std::size_t& arrived = arrived_[piece % fold_ring_pieces];
        if (++arrived < inputs_.size() - 1) return;
        arrived = 0;
        for (std::size_t rank = 0; rank < inputs_.size(); ++rank) {
            const bool own = static_cast<int>(rank) == lanes.rank();
            inputs_[rank] = own ? own_.at(piece) : ring_of(rank).at(piece);
        }
        summation_.sum(inputs_, result_.at(piece), result_.size_of(piece));
        summed(lanes, piece);
        const auto next = piece + fold_ring_pieces;
        if (next < own_.count()) open(lanes, next);
    }

  protected:
    /// `own` is this rank's part of its slice, `result` the same elements of the output.
    void receive_parts(TcpLanes& lanes, const Cut& own, const Cut& result) {
        own_ = own;
        result_ = result;
        scratch_ = lanes.scratch(inputs_.size() * fold_ring_pieces * own.piece_bytes);
        for (int peer = 0; peer < lanes.size(); ++peer)
            if (peer != lanes.rank()) lanes.receive(peer, 0, ring_of(static_cast<std::size_t>(peer)), Opening::by_plan);
    }
    virtual void summed(TcpLanes& /*lanes*/, std::size_t /*piece*/) {}

  private:
    [[nodiscard]] Cut ring_of(std::size_t rank) const {
        return {.base = scratch_ + rank * fold_ring_pieces * own_.piece_bytes,
                .size_bytes = own_.size_bytes,
                .piece_bytes = own_.piece_bytes,
                .ring_pieces = fold_ring_pieces};
    }
    static void open(TcpLanes& lanes, std::size_t piece) {
        for (int peer = 0; peer < lanes.size(); ++peer)
            if (peer != lanes.rank()) lanes.open_receive(peer, 0, piece);
    }

    TcpSummation summation_;
    std::vector<const void*> inputs_;
    std::array<std::size_t, fold_ring_pieces> arrived_{};
    Cut own_;
    Cut result_;
    std::byte* scratch_ = nullptr;
};

class ReduceScatter final : public Fold {
  public:
    ReduceScatter(const Operation& operation, int size) : Fold(operation, size), operation_(operation) {}

    void begin(TcpLanes& lanes) override {
        const std::size_t bytes = operation_.count * size_of(operation_.type);
        auto* const input = static_cast<std::byte*>(const_cast<void*>(operation_.input));
        const auto part = [&](std::byte* base) {
            return Cut{.base = base, .size_bytes = bytes, .piece_bytes = piece_bytes_for(bytes)};
        };
        for (int peer = 0; peer < lanes.size(); ++peer)
            if (peer != lanes.rank()) lanes.send(peer, 0, part(input + static_cast<std::size_t>(peer) * bytes));
        receive_parts(lanes, part(input + static_cast<std::size_t>(lanes.rank()) * bytes),
                      part(static_cast<std::byte*>(operation_.output)));
    }

  private:
    const Operation& operation_;
};

/// Each rank sums its slice of what is reduced, and sends the sums to the root.
class LargeReduce final : public Fold {
  public:
    LargeReduce(const Operation& operation, int size)
        : Fold(operation, size), operation_(operation), slices_(operation.count, size_of(operation.type), size) {}

    void begin(TcpLanes& lanes) override {
        auto* const input = input_of(operation_);
        const int root = operation_.peer;
        const Cut own = slices_.cut(lanes.rank(), input);
        Cut result = own;
        if (lanes.rank() == root) {
            result = slices_.cut(root, static_cast<std::byte*>(operation_.output));
        } else {
            sums_.resize(own.size_bytes);
            result.base = sums_.data();
            lanes.send(root, 1, result, Opening::by_plan);
        }
        for (int peer = 0; peer < lanes.size(); ++peer) {
            if (peer == lanes.rank()) continue;
            lanes.send(peer, 0, slices_.cut(peer, input));
            if (lanes.rank() == root)
                lanes.receive(peer, 1, slices_.cut(peer, static_cast<std::byte*>(operation_.output)));
        }
        receive_parts(lanes, own, result);
    }

  private:
    void summed(TcpLanes& lanes, std::size_t piece) override {
        if (lanes.rank() != operation_.peer) lanes.open_send(operation_.peer, 1, piece);
    }

    const Operation& operation_;
    const Slices slices_;
    std::vector<std::byte> sums_;  ///< Of this rank's slice: the caller's memory is read only.
};

/// In place: a rank gets the sums of a piece only after it has sent its part of it, and its own slice is nobody else's.
class LargeAllReduce final : public Fold {
  public:
    LargeAllReduce(const Operation& operation, int size)
        : Fold(operation, size),
          data_(static_cast<std::byte*>(operation.output)),
          slices_(operation.count, size_of(operation.type), size) {}

    void begin(TcpLanes& lanes) override {
        const Cut own = slices_.cut(lanes.rank(), data_);
        for (int peer = 0; peer < lanes.size(); ++peer) {
            if (peer == lanes.rank()) continue;
            lanes.send(peer, 0, slices_.cut(peer, data_));
            lanes.send(peer, 1, own, Opening::by_plan);
            lanes.receive(peer, 1, slices_.cut(peer, data_));
        }
        receive_parts(lanes, own, own);
    }

  private:
    void summed(TcpLanes& lanes, std::size_t piece) override {
        for (int peer = 0; peer < lanes.size(); ++peer)
            if (peer != lanes.rank()) lanes.open_send(peer, 1, piece);
    }

    std::byte* const data_;
    const Slices slices_;
};

}  // namespace

Result<void> run_reduction(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    const auto header = header_of(operation, 0);
    const std::size_t bytes = operation.count * size_of(operation.type);
    if (operation.kind == OperationKind::reduce_scatter) {
        ReduceScatter plan(operation, lanes.size());
        return lanes.carry(plan, header, terms);
    }
    if (bytes <= small_reduce_bytes_max(lanes.size())) {
        SmallAllReduce plan(operation);
        return lanes.carry(plan, header, terms);
    }
    if (operation.kind == OperationKind::reduce) {
        LargeReduce plan(operation, lanes.size());
        return lanes.carry(plan, header, terms);
    }
    LargeAllReduce plan(operation, lanes.size());
    return lanes.carry(plan, header, terms);
}

}  // namespace muster::runtime
