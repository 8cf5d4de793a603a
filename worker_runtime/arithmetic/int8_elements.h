// Numbers as 8-bit integers, one at a time, for the host and for GPUs.
#pragma once

#include <cstdint>

#include "worker_runtime/core/always_inline.h"

namespace muster::runtime {

inline constexpr std::int32_t infinity_bits = 0x7f800000;
/// Below this the reciprocal of a scale would overflow; such gradients wait in the error feedback.
inline constexpr float int8_tiny = 1e-30f;
/// Added to a number of less than 2^22, it leaves the nearest integer (ties to even) in the low bits.
inline constexpr float int8_rounder = 12582912.0f;

/// The bits of the absolute value, whose order is that of the values; a NaN is larger than all.
MUSTER_INLINE constexpr std::int32_t magnitude_bits(float value) {
    return static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, value) & 0x7fffffff);
}

/// The nearest code of `value`, where `inverse` is 127 / (the largest magnitude of the block).
MUSTER_INLINE constexpr std::int32_t int8_code(float value, float inverse) {
    const float nearest = value * inverse + int8_rounder;
    return __builtin_bit_cast(std::int32_t, nearest) - __builtin_bit_cast(std::int32_t, int8_rounder);
}

/// What `code` stands for. Zero is zero, also in a block whose scale is NaN: the padding between gradients, which
/// nobody writes, would otherwise spoil its block for ever.
MUSTER_INLINE constexpr float int8_value(float scale, std::int8_t code) {
    return code == 0 ? 0.0f : scale * static_cast<float>(code);
}

}  // namespace muster::runtime
