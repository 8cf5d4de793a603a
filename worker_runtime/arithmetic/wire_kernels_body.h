// WireKernels for one instruction set: plain loops that the compiler vectorizes. The rule of
// arithmetic/reduce_formats_body.h applies here too: everything has internal linkage, and functions of other headers
// are always inlined. The including file has defined narrow_f16_vectors() and widen_f16_vectors(), which return the
// number of converted elements: all but a rest of less than a vector, or none.
#pragma once

#include "worker_runtime/arithmetic/half_formats.h"
#include "worker_runtime/arithmetic/int8_elements.h"
#include "worker_runtime/arithmetic/wire_kernels.h"

namespace {

using namespace muster::runtime;

void narrow_bf16(const float* __restrict from, std::uint16_t* __restrict to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = bf16_of_f32(from[i]);
}

void narrow_f16(const float* __restrict from, std::uint16_t* __restrict to, std::size_t count) {
    for (std::size_t i = narrow_f16_vectors(from, to, count); i < count; ++i) to[i] = f16_of_f32(from[i]);
}

void widen_bf16(const std::uint16_t* __restrict from, float* __restrict to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = f32_of_bf16(from[i]);
}

void widen_f16(const std::uint16_t* __restrict from, float* __restrict to, std::size_t count) {
    for (std::size_t i = widen_f16_vectors(from, to, count); i < count; ++i) to[i] = f32_of_f16(from[i]);
}

/// A block's arrays stay in the L1 cache between the two loops.
float quantise(const float* __restrict values, float factor, std::size_t count, float* __restrict lost,
               std::int8_t* __restrict codes) {
    // As integers, because an integer maximum needs no special case for NaNs.
    std::int32_t largest_bits = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const float sum = values[i] * factor + lost[i];
        const std::int32_t bits = magnitude_bits(sum);
        lost[i] = sum;
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    const auto largest = __builtin_bit_cast(float, largest_bits);
    if (largest_bits >= infinity_bits) {
        for (std::size_t i = 0; i < count; ++i) {
            codes[i] = lost[i] != 0 ? 1 : 0;
            lost[i] = 0;
        }
        return __builtin_nanf("");
    }
    if (largest < int8_tiny) {
        __builtin_memset(codes, 0, count);
        return 0;
    }
    const float scale = largest / 127;
    const float inverse = 127 / largest;
    for (std::size_t i = 0; i < count; ++i) {
        const std::int32_t code = int8_code(lost[i], inverse);
        codes[i] = static_cast<std::int8_t>(code);
        lost[i] -= scale * static_cast<float>(code);
    }
    return scale;
}

void add_scaled(float* __restrict sums, const std::int8_t* __restrict codes, std::size_t count, float factor) {
    for (std::size_t i = 0; i < count; ++i) sums[i] += int8_value(factor, codes[i]);
}

void dequantise(const std::int8_t* __restrict codes, std::size_t count, float scale, float* __restrict values) {
    for (std::size_t i = 0; i < count; ++i) values[i] = int8_value(scale, codes[i]);
}

constexpr WireKernels these_kernels{.narrow_bf16 = narrow_bf16,
                                    .narrow_f16 = narrow_f16,
                                    .widen_bf16 = widen_bf16,
                                    .widen_f16 = widen_f16,
                                    .quantise = quantise,
                                    .add_scaled = add_scaled,
                                    .dequantise = dequantise};

}  // namespace
