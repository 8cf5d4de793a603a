#include "worker_runtime/engine/int8_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace muster::runtime {

namespace {

constexpr std::int32_t infinity_bits = 0x7f800000;
/// Added to a number of less than 2^22, it leaves the nearest integer (ties to even) in the low bits.
constexpr float rounder = 12582912.0f;
/// Below this the reciprocal of a scale would overflow; such gradients wait in the error feedback.
constexpr float tiny = 1e-30f;

/// The bits of the largest absolute value; a NaN is larger than all. Integers, because their maximum needs no care.
std::int32_t largest_bits(const float* values, std::size_t count) {
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffff);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

}  // namespace

float quantise(const float* values, std::size_t count, std::int8_t* codes, float* lost) {
    const std::int32_t bits = largest_bits(values, count);
    const float largest = std::bit_cast<float>(bits);
    if (bits >= infinity_bits) {
        std::memset(codes, 1, count);
        std::fill_n(lost, count, 0.0f);
        return std::numeric_limits<float>::quiet_NaN();
    }
    if (largest < tiny) {
        std::memset(codes, 0, count);
        std::copy_n(values, count, lost);
        return 0;
    }
    const float scale = largest / 127;
    const float inverse = 127 / largest;
    for (std::size_t i = 0; i < count; ++i) {
        const float nearest = values[i] * inverse + rounder;
        const std::int32_t code = std::bit_cast<std::int32_t>(nearest) - std::bit_cast<std::int32_t>(rounder);
        codes[i] = static_cast<std::int8_t>(code);
        lost[i] = values[i] - scale * static_cast<float>(code);
    }
    return scale;
}

void add_scaled(float* sums, const std::int8_t* codes, std::size_t count, float factor) {
    for (std::size_t i = 0; i < count; ++i) sums[i] += factor * static_cast<float>(codes[i]);
}

void dequantise(const std::int8_t* codes, std::size_t count, float scale, float* values) {
    for (std::size_t i = 0; i < count; ++i) values[i] = scale * static_cast<float>(codes[i]);
}

}  // namespace muster::runtime
