// Divides an array into slices, one for each of some ranks: whole cache lines, and of equal size except the last ones.
#pragma once

#include <algorithm>
#include <cstddef>

#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_pieces.h"

namespace muster::runtime {

/// How large the pieces of `bytes` are: the same on all ranks.
constexpr std::size_t piece_bytes_for(std::size_t bytes) {
    return std::clamp((bytes / 8 + 63) / 64 * 64, piece_bytes_min, piece_bytes_max);
}

class Slices {
  public:
    Slices(std::size_t count, std::size_t element_bytes, int slice_count)
        : size_bytes_(count * element_bytes),
          slice_bytes_((size_bytes_ / static_cast<std::size_t>(slice_count) + 64) / 64 * 64) {}

    [[nodiscard]] std::size_t begin_bytes(int slice) const {
        return std::min(size_bytes_, static_cast<std::size_t>(slice) * slice_bytes_);
    }
    [[nodiscard]] Cut cut(int slice, std::byte* array) const {
        const auto begin = begin_bytes(slice);
        return {.base = array + begin,
                .size_bytes = begin_bytes(slice + 1) - begin,
                .piece_bytes = piece_bytes_for(slice_bytes_)};
    }

  private:
    std::size_t size_bytes_;
    std::size_t slice_bytes_;
};

}  // namespace muster::runtime
