// Cuts memory into pieces for the wire, and tracks the progress of one connection.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "rendezvous/base/check.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"

namespace muster::runtime {

/// `size_bytes` at `base` in pieces of `piece_bytes`, the last one shorter. With `ring_pieces`, memory for so many
/// pieces is used in turn.
struct Cut {
    std::byte* base = nullptr;
    std::size_t size_bytes = 0;
    std::size_t piece_bytes = piece_bytes_max;
    std::size_t ring_pieces = 0;

    [[nodiscard]] std::size_t count() const { return (size_bytes + piece_bytes - 1) / piece_bytes; }
    [[nodiscard]] std::size_t size_of(std::size_t piece) const {
        return std::min(piece_bytes, size_bytes - piece * piece_bytes);
    }
    [[nodiscard]] std::byte* at(std::size_t piece) const {
        return base + (ring_pieces > 0 ? piece % ring_pieces : piece) * piece_bytes;
    }
};

/// One direction of one connection in one operation. The connections of a lane share the pieces: of `stripes`, this one
/// carries number `stripe` and every `stripes`th after it, in order. A piece moves once it has been opened.
class PieceQueue {
  public:
    void begin(const Cut& cut, std::size_t stripe, std::size_t stripes) {
        cut_ = cut;
        stripes_ = stripes;
        piece_ = stripe;
        open_ = stripe;
        offset_ = 0;
        count_ = cut.count();
    }

    [[nodiscard]] bool finished() const { return piece_ >= count_; }
    /// Opens the next piece of this connection.
    void open_one() { open_ += stripes_; }
    void open_all() { open_ = count_ + stripes_; }

    /// What is to move next; empty when nothing may.
    [[nodiscard]] std::span<std::byte> next() const {
        if (finished() || piece_ >= open_) return {};
        return {cut_.at(piece_) + offset_, cut_.size_of(piece_) - offset_};
    }
    [[nodiscard]] std::size_t piece() const { return piece_; }
    /// So much of next() has moved. True when that ends a piece, which was piece() before.
    bool advance(std::size_t bytes) {
        offset_ += bytes;
        MUSTER_CHECK(offset_ <= cut_.size_of(piece_), offset_, cut_.size_of(piece_));
        if (offset_ < cut_.size_of(piece_)) return false;
        offset_ = 0;
        piece_ += stripes_;
        return true;
    }

  private:
    Cut cut_;
    std::size_t count_ = 0;
    std::size_t stripes_ = 1;
    std::size_t piece_ = 0;
    std::size_t open_ = 0;  ///< Pieces below this index may move.
    std::size_t offset_ = 0;
};

}  // namespace muster::runtime
