// The two 16-bit formats, one element at a time: IEEE 754 binary16, and bf16, the upper half of an f32. Rounds to
// nearest even; NaNs become quiet. For the host and for GPUs.
#pragma once

#include <cstdint>

#include "worker_runtime/core/always_inline.h"

namespace muster::runtime {

MUSTER_INLINE constexpr float f32_of_bf16(std::uint16_t x) {
    return __builtin_bit_cast(float, std::uint32_t{x} << 16);
}

MUSTER_INLINE constexpr std::uint16_t bf16_of_f32(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    // Adds half of the last place, less one bit if the upper half is even: the carry rounds the upper half.
    const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const std::uint32_t quiet = ((bits >> 16) & 0x8000) | 0x7fc0;
    return static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

MUSTER_INLINE constexpr float f32_of_f16(std::uint16_t x) {
    const std::uint32_t sign = std::uint32_t{x} >> 15 << 31;
    const std::uint32_t magnitude = x & 0x7fff;
    if (magnitude >= 0x7c00) {
        const std::uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
        return __builtin_bit_cast(float, sign | 0x7f800000 | quiet | (magnitude & 0x3ff) << 13);
    }
    // Subnormals: the fraction is put into a number of 2^-14 or more, and 2^-14 is then subtracted. No f32 here is
    // subnormal, so a processor that flushes those to zero gives the same result.
    const float value = magnitude < 0x400 ? __builtin_bit_cast(float, (magnitude << 13) + 0x38800000) - 0x1p-14f
                                          : __builtin_bit_cast(float, (magnitude << 13) + 0x38000000);
    return __builtin_bit_cast(float, sign | __builtin_bit_cast(std::uint32_t, value));
}

MUSTER_INLINE constexpr std::uint16_t f16_of_f32(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    const std::uint32_t sign = bits >> 31 << 15;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    std::uint32_t result = 0;
    if (magnitude > 0x7f800000) {
        result = 0x7e00;
    } else if (magnitude >= 0x477ff000) {
        result = 0x7c00;  // 65520 and more round to infinity
    } else if (magnitude < 0x38800000) {
        // Below 2^-14 the last place is 2^-24, as in numbers from 0.5 to 1: the addition rounds.
        result = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) -
                 __builtin_bit_cast(std::uint32_t, 0.5f);
    } else {
        result = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
    }
    return static_cast<std::uint16_t>(sign | result);
}

}  // namespace muster::runtime
