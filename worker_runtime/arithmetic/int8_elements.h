// Numbers as 8-bit integers, one element at a time, for the host and for GPUs.
#pragma once

#include <cstdint>

#include "worker_runtime/core/always_inline.h"

namespace muster::runtime {

inline constexpr std::int32_t infinity_bits = 0x7f800000;
/// Below this, the reciprocal of a scale overflows; error feedback sends such gradients in later steps.
inline constexpr float int8_tiny = 1e-30f;
/// If it is added to a number below 2^22, the low bits are the nearest integer (ties to even).
inline constexpr float int8_rounder = 12582912.0f;

/// Returns the bits of the absolute value. They sort as the values do; a NaN is the largest.
MUSTER_INLINE constexpr std::int32_t magnitude_bits(float value) {
    return static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, value) & 0x7fffffff);
}

/// Returns the nearest code of `value`; `inverse` is 127 / (the largest magnitude of the block).
MUSTER_INLINE constexpr std::int32_t int8_code(float value, float inverse) {
    const float nearest = value * inverse + int8_rounder;
    return __builtin_bit_cast(std::int32_t, nearest) - __builtin_bit_cast(std::int32_t, int8_rounder);
}

/// Returns the value of `code`. A code of 0 is 0 even if the block's scale is NaN: else the padding between gradients,
/// which is never written, would keep the block NaN for ever.
MUSTER_INLINE constexpr float int8_value(float scale, std::int8_t code) {
    return code == 0 ? 0.0f : scale * static_cast<float>(code);
}

}  // namespace muster::runtime
