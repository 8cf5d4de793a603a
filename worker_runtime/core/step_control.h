// What ranks tell each other at the end of every step, in one small all-reduce (u8, max) beside the gradients':
//
//   byte 0             1: rank 0 asks for new buckets
//   byte 1 + i         parameter i: 0 unused, 1 used, 2 + r used and not finite on rank r (the highest such rank; ranks
//                      beyond 253 say 255)
//   then 8 bytes/rank  zero but for its own: how long the rank waited for communication in the step before (u32,
//                      microseconds), and the samples of this step (f32)
//
// The maximum of bytes is the union where a byte is a yes, and a gather where all but one rank write zero. A bitmap
// would be an eighth of the size, but the maximum of bytes is not the union of bits. With 1,000 parameters the block is
// 1 KiB: about 2 us over shared memory, and the same on every step, so that ranks need not agree on when to send it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rendezvous/base/time.h"

namespace muster::runtime {

/// A view of the block's bytes, which the caller owns.
class StepControl {
  public:
    static std::size_t size_bytes(std::size_t parameter_count, int world);

    StepControl(std::span<std::uint8_t> bytes, std::size_t parameter_count, int world);

    void clear();
    void ask_for_new_buckets() { bytes_[0] = 1; }
    void set_used(std::size_t parameter) { bytes_[1 + parameter] = 1; }
    void set_not_finite(std::size_t parameter, int rank);
    void set_waited(int rank, Duration waited);
    void set_samples(int rank, float samples);

    [[nodiscard]] bool new_buckets_asked() const { return bytes_[0] != 0; }
    [[nodiscard]] bool used(std::size_t parameter) const { return bytes_[1 + parameter] != 0; }
    [[nodiscard]] Duration waited(int rank) const;
    [[nodiscard]] float samples(int rank) const;

    struct NotFinite {
        std::size_t parameter;
        int rank;
    };
    /// The first parameter that is not finite somewhere, and a rank where it is not.
    [[nodiscard]] std::optional<NotFinite> first_not_finite() const;

  private:
    [[nodiscard]] std::uint8_t* of_rank(int rank) const;

    std::span<std::uint8_t> bytes_;
    std::size_t parameter_count_;
};

}  // namespace muster::runtime
