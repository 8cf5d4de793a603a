#include "worker_runtime/tcp/tcp_circle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "rendezvous/base/check.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_slices.h"

namespace muster::runtime {

namespace {

using Opening = TcpLanes::Opening;

/// A rank never sends twice to one other, nor receives twice from it: distances below the circle's size differ.
class Steps : public CollectivePlan {
  public:
    explicit Steps(const TcpCircle& circle) : circle_(circle) {}

    void begin(TcpLanes& lanes) override {
        for (int distance = 1; circle_.own >= 0 && distance < circle_.size(); distance *= 2) {
            Step step{.to = circle_.at(circle_.own + distance), .from = circle_.at(circle_.own - distance)};
            for (int lane = 0; lane < lane_count; ++lane) {
                step.out[static_cast<std::size_t>(lane)] = outgoing(distance, lane);
                const Cut in = incoming(distance, lane);
                lanes.send(step.to, lane, step.out[static_cast<std::size_t>(lane)], Opening::by_plan);
                lanes.receive(step.from, lane, in);
                step.missing += in.count();
            }
            steps_.push_back(step);
        }
    }
    void agreed(TcpLanes& lanes) override {
        ready();
        if (!steps_.empty()) open(lanes);
        advance(lanes);
    }
    void received(TcpLanes& lanes, int from, int /*lane*/, std::size_t /*piece*/) override {
        const auto step =
            std::find_if(steps_.begin(), steps_.end(), [from](const Step& one) { return one.from == from; });
        MUSTER_CHECK(step != steps_.end() && step->missing > 0, lanes.rank(), from);
        --step->missing;
        advance(lanes);
    }

  protected:
    // Of the step of this distance:
    [[nodiscard]] virtual Cut outgoing(int distance, int lane) = 0;
    [[nodiscard]] virtual Cut incoming(int distance, int lane) = 0;
    /// All partners do the same.
    virtual void ready() {}
    /// Step `number` is about to send, and all steps before it have arrived.
    virtual void prepare(std::size_t /*number*/) {}
    virtual void arrived(std::size_t /*number*/) {}

    const TcpCircle& circle_;

  private:
    struct Step {
        int to = -1;
        int from = -1;
        std::array<Cut, lane_count> out{};
        std::size_t missing = 0;  ///< Pieces.
    };
    void open(TcpLanes& lanes) {
        prepare(done_);
        const Step& step = steps_[done_];
        for (int lane = 0; lane < lane_count; ++lane)
            for (std::size_t piece = 0; piece < step.out[static_cast<std::size_t>(lane)].count(); ++piece)
                lanes.open_send(step.to, lane, piece);
    }
    void advance(TcpLanes& lanes) {
        while (done_ < steps_.size() && steps_[done_].missing == 0) {
            arrived(done_++);
            if (done_ < steps_.size()) open(lanes);
        }
    }

    std::vector<Step> steps_;
    std::size_t done_ = 0;
};

Cut cut_of(std::byte* data, std::size_t size_bytes) {
    return {.base = data, .size_bytes = size_bytes, .piece_bytes = piece_bytes_for(size_bytes)};
}

/// Dissemination: what is least stays least however often it is counted.
class Least final : public Steps {
  public:
    Least(const TcpCircle& circle, int value) : Steps(circle), least_(value) {}
    [[nodiscard]] int least() const { return least_; }

  private:
    using Values = std::array<std::int32_t, 32>;
    static Cut cut_at(Values& values, int distance, int lane) {
        auto& value = values[static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(distance)))];
        return cut_of(reinterpret_cast<std::byte*>(&value), lane == 0 ? sizeof value : 0);
    }
    Cut outgoing(int distance, int lane) override { return cut_at(sent_, distance, lane); }
    Cut incoming(int distance, int lane) override { return cut_at(received_, distance, lane); }
    void prepare(std::size_t number) override { sent_[number] = least_; }
    void arrived(std::size_t number) override { least_ = std::min(least_, received_[number]); }

    std::int32_t least_;
    Values sent_{};
    Values received_{};
};

/// Before the step of distance d a place has the parts of the d places up to its own. It sends them all, as far as they
/// are missing there. Where they go over the end of the memory, the second half travels on the other lane.
class Gather final : public Steps {
  public:
    Gather(const TcpCircle& circle, std::byte* base, const std::vector<std::size_t>& begins, const void* own_part)
        : Steps(circle), base_(base), begins_(begins), own_part_(own_part) {}

  private:
    Cut outgoing(int distance, int lane) override { return parts_up_to(circle_.own, distance, lane); }
    Cut incoming(int distance, int lane) override { return parts_up_to(circle_.own - distance, distance, lane); }
    void ready() override {
        if (circle_.own < 0) return;
        const Cut own = between(circle_.own, circle_.own + 1);
        if (own_part_ && own_part_ != own.base && own.size_bytes > 0) std::memcpy(own.base, own_part_, own.size_bytes);
    }

    [[nodiscard]] Cut between(int first, int end) const {
        const auto begin = begins_[static_cast<std::size_t>(first)];
        return cut_of(base_ + begin, begins_[static_cast<std::size_t>(end)] - begin);
    }
    [[nodiscard]] Cut parts_up_to(int place, int distance, int lane) const {
        const int size = circle_.size();
        const int end = (place + size) % size + 1;
        const int first = end - std::min(distance, size - distance);
        if (lane > 0) return first < 0 ? between(0, end) : Cut{};
        return first < 0 ? between(first + size, size) : between(first, end);
    }

    std::byte* const base_;
    const std::vector<std::size_t>& begins_;
    const void* const own_part_;
};

/// Slot i is for the rank i places further. In the step of distance d all slots whose number contains d move on by d:
/// after the last step, slot i holds what the rank i places before has sent.
class Exchange final : public Steps {
  public:
    Exchange(const TcpCircle& circle, const SlotExchange& slots) : Steps(circle), slots_(slots) {}

    void begin(TcpLanes& lanes) override {
        const auto size = static_cast<std::size_t>(circle_.size());
        std::size_t moved = 0;
        for (std::size_t distance = 1; distance < size; distance *= 2) {
            Moves moves{.first_bytes = (size + 2 * moved) * slots_.slot_bytes};
            for (std::size_t slot = 0; slot < size; ++slot)
                if (slot & distance) moves.slots.push_back(slot);
            moved += moves.slots.size();
            moves_.push_back(std::move(moves));
        }
        memory_ = lanes.scratch((size + 2 * moved) * slots_.slot_bytes);
        for (std::size_t slot = 0; slot < size; ++slot)
            slots_.fill(circle_.at(circle_.own + static_cast<int>(slot)), at(slot));
        Steps::begin(lanes);
    }
    void finished(TcpLanes& /*lanes*/) override {
        std::vector<const void*> slots;
        for (int rank = 0; rank < circle_.size(); ++rank)
            slots.push_back(at(static_cast<std::size_t>((circle_.own - rank + circle_.size()) % circle_.size())));
        slots_.take(slots);
    }

  private:
    /// What one step sends lies before what it receives.
    struct Moves {
        std::vector<std::size_t> slots{};
        std::size_t first_bytes = 0;
    };
    [[nodiscard]] std::byte* at(std::size_t slot) const { return memory_ + slot * slots_.slot_bytes; }
    [[nodiscard]] std::byte* packed(const Moves& moves, std::size_t index) const {
        return memory_ + moves.first_bytes + index * slots_.slot_bytes;
    }
    [[nodiscard]] Cut cut(int distance, int lane, bool received) const {
        const auto& moves = moves_[static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(distance)))];
        const auto count = moves.slots.size();
        return cut_of(packed(moves, received ? count : 0), lane == 0 ? count * slots_.slot_bytes : 0);
    }
    Cut outgoing(int distance, int lane) override { return cut(distance, lane, false); }
    Cut incoming(int distance, int lane) override { return cut(distance, lane, true); }
    void prepare(std::size_t number) override {
        const auto& moves = moves_[number];
        for (std::size_t i = 0; i < moves.slots.size(); ++i)
            std::memcpy(packed(moves, i), at(moves.slots[i]), slots_.slot_bytes);
    }
    void arrived(std::size_t number) override {
        const auto& moves = moves_[number];
        for (std::size_t i = 0; i < moves.slots.size(); ++i)
            std::memcpy(at(moves.slots[i]), packed(moves, moves.slots.size() + i), slots_.slot_bytes);
    }

    const SlotExchange& slots_;
    std::vector<Moves> moves_;
    std::byte* memory_ = nullptr;
};

/// Pieces are passed on as they come.
class Broadcast final : public CollectivePlan {
  public:
    Broadcast(const TcpCircle& circle, int root, const Cut& data) : data_(data) {
        if (circle.own < 0) return;
        const int size = circle.size();
        const int place = (circle.own - root + size) % size;
        const bool is_large = data.size_bytes >= static_cast<std::size_t>(size) * broadcast_bytes_per_rank_min;
        // In the tree, a place has its data from the one without its highest bit.
        const auto above = static_cast<int>(std::bit_floor(static_cast<unsigned>(place)));
        if (place > 0) from_ = circle.at(root + (is_large ? place - 1 : place - above));
        for (int distance = is_large ? 1 : std::max(1, 2 * above); place + distance < size; distance *= 2) {
            to_.push_back(circle.at(root + place + distance));
            if (is_large) break;
        }
    }

    void begin(TcpLanes& lanes) override {
        for (const int rank : to_) lanes.send(rank, 0, data_, from_ < 0 ? Opening::at_once : Opening::by_plan);
        if (from_ >= 0) lanes.receive(from_, 0, data_);
    }
    void received(TcpLanes& lanes, int /*from*/, int /*lane*/, std::size_t piece) override {
        for (const int rank : to_) lanes.open_send(rank, 0, piece);
    }

  private:
    const Cut data_;
    int from_ = -1;
    std::vector<int> to_;
};

}  // namespace

TcpCircle circle_of_all(const TcpLanes& lanes) {
    TcpCircle circle{.ranks = std::vector<int>(static_cast<std::size_t>(lanes.size())), .own = lanes.rank()};
    std::iota(circle.ranks.begin(), circle.ranks.end(), 0);
    return circle;
}

Result<int> least_of_all(TcpLanes& lanes, const CollectiveHeader& header, int value, const RunTerms& terms) {
    const auto circle = circle_of_all(lanes);
    Least plan(circle, value);
    if (auto done = lanes.carry(plan, header, terms); !done) return done.error();
    return plan.least();
}

Result<void> gather_round(TcpLanes& lanes, const TcpCircle& circle, std::byte* base,
                          const std::vector<std::size_t>& begins, const void* own_part, const CollectiveHeader& header,
                          const RunTerms& terms) {
    Gather plan(circle, base, begins, own_part);
    return lanes.carry(plan, header, terms);
}

Result<void> broadcast_round(TcpLanes& lanes, const TcpCircle& circle, int root, std::byte* data,
                             std::size_t size_bytes, const CollectiveHeader& header, const RunTerms& terms) {
    Broadcast plan(circle, root, cut_of(data, size_bytes));
    return lanes.carry(plan, header, terms);
}

Result<void> exchange_round(TcpLanes& lanes, const SlotExchange& slots, const CollectiveHeader& header,
                            const RunTerms& terms) {
    const auto circle = circle_of_all(lanes);
    Exchange plan(circle, slots);
    return lanes.carry(plan, header, terms);
}

Result<void> learn_weights(TcpLanes& lanes, const Operation& operation, const CollectiveHeader& header,
                           const RunTerms& terms) {
    if (lanes.is_whole()) return {};
    lanes.know_weights({});
    if (!multiplies(operation.reduce) || !operation.weighted) return {};
    const auto circle = circle_of_all(lanes);
    std::vector<double> weights(static_cast<std::size_t>(lanes.size()));
    std::vector<std::size_t> begins;
    for (std::size_t i = 0; i <= weights.size(); ++i) begins.push_back(i * sizeof(double));
    auto named = header;
    named.flags |= CollectiveHeader::weighs;
    auto* const base = reinterpret_cast<std::byte*>(weights.data());
    if (auto done = gather_round(lanes, circle, base, begins, &operation.weight, named, terms); !done) return done;
    lanes.know_weights(std::move(weights));
    return {};
}

}  // namespace muster::runtime
