#include "worker_runtime/tcp/tcp_chain.h"

#include <algorithm>
#include <cstring>

#include "worker_runtime/arithmetic/reduce_kernels.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_circle.h"
#include "worker_runtime/tcp/tcp_slices.h"

namespace muster::runtime {

namespace {

using Opening = TcpLanes::Opening;

// Lane 0 carries sums towards the last rank, lane 1 results towards the first.
constexpr int up = 0;
constexpr int down = 1;

class Chain final : public CollectivePlan {
  public:
    Chain(const Operation& operation, const ChainPlace& place) : operation_(operation), place_(place) {}

    void begin(TcpLanes& lanes) override {
        if (place_.bytes == 0) return;
        data_ = cut_at(static_cast<std::byte*>(place_.memory[place_.own]));
        if (place_.previous >= 0) {
            sums_ = data_;
            sums_.base = lanes.scratch(fold_ring_pieces * data_.piece_bytes);
            sums_.ring_pieces = fold_ring_pieces;
            lanes.receive(place_.previous, up, sums_, Opening::by_plan);
            lanes.send(place_.previous, down, data_, Opening::by_plan);
        }
        if (place_.next >= 0) {
            lanes.send(place_.next, up, data_, Opening::by_plan);
            // A result comes only after the sum that it was made of has left this memory.
            lanes.receive(place_.next, down, data_);
        }
    }

    void agreed(TcpLanes& lanes) override {
        if (place_.bytes == 0) return;
        receive_weights(lanes);
        if (place_.previous >= 0) {
            for (std::size_t piece = 0; piece < std::min(fold_ring_pieces, data_.count()); ++piece)
                lanes.open_receive(place_.previous, up, piece);
            return;
        }
        for (std::size_t piece = 0; piece < data_.count(); ++piece) {
            add(piece);
            lanes.open_send(place_.next, up, piece);
        }
    }

    void received(TcpLanes& lanes, int /*from*/, int lane, std::size_t piece) override {
        if (lane == down) return pass_down(lanes, piece);
        add(piece);
        if (piece + fold_ring_pieces < data_.count()) lanes.open_receive(place_.previous, up, piece + fold_ring_pieces);
        if (place_.next >= 0)
            lanes.open_send(place_.next, up, piece);
        else
            lanes.open_send(place_.previous, down, piece);
    }

  private:
    [[nodiscard]] Cut cut_at(std::byte* base) const {
        return {.base = base, .size_bytes = place_.bytes, .piece_bytes = piece_bytes_for(place_.bytes)};
    }
    [[nodiscard]] bool weighs() const { return multiplies(operation_.reduce); }

    void receive_weights(const TcpLanes& lanes) {
        if (!weighs()) return;
        const auto all = lanes.weights();
        reciprocal_ = reciprocal_of(operation_.type, all.data(), lanes.size());
        if (place_.previous >= 0) weights_.push_back(1);  // the sum so far is weighed already
        const auto first = all.begin() + place_.first_rank;
        weights_.insert(weights_.end(), first, first + static_cast<std::ptrdiff_t>(place_.memory.size()));
    }

    /// This place's elements to the sum so far; at the chain's end, the result to all of this place's memory.
    void add(std::size_t piece) {
        const std::size_t begin = piece * data_.piece_bytes;
        std::vector<const void*> inputs;
        std::vector<void*> outputs;
        if (place_.previous >= 0) inputs.push_back(sums_.at(piece));
        for (auto* const one : place_.memory) inputs.push_back(static_cast<std::byte*>(one) + begin);
        if (place_.next >= 0)
            outputs.push_back(data_.at(piece));
        else
            for (auto* const one : place_.memory) outputs.push_back(static_cast<std::byte*>(one) + begin);
        reduce({.type = operation_.type,
                .reduce = operation_.reduce,
                .inputs = inputs.data(),
                .input_count = static_cast<int>(inputs.size()),
                .outputs = outputs.data(),
                .output_count = static_cast<int>(outputs.size()),
                .count = data_.size_of(piece) / size_of(operation_.type),
                .weights = weighs() ? weights_.data() : nullptr,
                .reciprocal = place_.next >= 0 ? 1 : reciprocal_});
    }

    void pass_down(TcpLanes& lanes, std::size_t piece) {
        if (place_.previous >= 0) lanes.open_send(place_.previous, down, piece);
        for (std::size_t i = 0; i < place_.memory.size(); ++i) {
            if (i == place_.own) continue;
            auto* const to = static_cast<std::byte*>(place_.memory[i]) + piece * data_.piece_bytes;
            std::memcpy(to, data_.at(piece), data_.size_of(piece));
        }
    }

    const Operation& operation_;
    const ChainPlace& place_;
    Cut data_;
    Cut sums_;  ///< Sums of the ranks before; a ring buffer.
    std::vector<double> weights_;
    double reciprocal_ = 0;
};

}  // namespace

bool can_chain(DataType type) {
    return type != DataType::f16 && type != DataType::bf16;
}

ChainPlace own_place(const TcpLanes& lanes, const Operation& operation) {
    return {.previous = lanes.rank() - 1,
            .next = lanes.rank() + 1 < lanes.size() ? lanes.rank() + 1 : -1,
            .memory = {operation.output},
            .first_rank = lanes.rank(),
            .bytes = operation.count * size_of(operation.type)};
}

Result<void> run_chain(TcpLanes& lanes, const Operation& operation, const ChainPlace& place, const Operation& named,
                       const RunTerms& terms) {
    auto header = header_of(named, 0);
    header.flags |= CollectiveHeader::chained;
    if (auto known = learn_weights(lanes, operation, header, terms); !known) return known;
    Chain plan(operation, place);
    return lanes.carry(plan, header, terms);
}

}  // namespace muster::runtime
