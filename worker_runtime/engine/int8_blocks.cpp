#include "worker_runtime/engine/int8_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "worker_runtime/core/bucket_plan.h"
#include "worker_runtime/engine/int8_elements.h"

namespace muster::runtime {

namespace {

/// Integers, because their maximum needs no care.
std::int32_t largest_bits(const float* values, std::size_t count) {
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = magnitude_bits(values[i]);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::size_t int8_piece_elements(std::size_t bucket_elements, std::size_t world) {
    return round_up((bucket_elements + world - 1) / world, int8_block);
}

std::size_t int8_piece_bytes(std::size_t elements) {
    return round_up(sizeof(float) * (1 + elements / int8_block) + elements, gradient_alignment_bytes);
}

float quantise(const float* values, std::size_t count, std::int8_t* codes, float* lost) {
    const std::int32_t bits = largest_bits(values, count);
    const float largest = std::bit_cast<float>(bits);
    if (bits >= infinity_bits) {
        for (std::size_t i = 0; i < count; ++i) codes[i] = values[i] != 0 ? 1 : 0;
        std::fill_n(lost, count, 0.0f);
        return std::numeric_limits<float>::quiet_NaN();
    }
    if (largest < int8_tiny) {
        std::memset(codes, 0, count);
        std::copy_n(values, count, lost);
        return 0;
    }
    const float scale = largest / 127;
    const float inverse = 127 / largest;
    for (std::size_t i = 0; i < count; ++i) {
        const std::int32_t code = int8_code(values[i], inverse);
        codes[i] = static_cast<std::int8_t>(code);
        lost[i] = values[i] - scale * static_cast<float>(code);
    }
    return scale;
}

void add_scaled(float* sums, const std::int8_t* codes, std::size_t count, float factor) {
    if (std::isnan(factor)) {
        for (std::size_t i = 0; i < count; ++i) sums[i] += int8_value(factor, codes[i]);
        return;
    }
    for (std::size_t i = 0; i < count; ++i) sums[i] += factor * static_cast<float>(codes[i]);
}

void dequantise(const std::int8_t* codes, std::size_t count, float scale, float* values) {
    if (std::isnan(scale)) {
        for (std::size_t i = 0; i < count; ++i) values[i] = int8_value(scale, codes[i]);
        return;
    }
    for (std::size_t i = 0; i < count; ++i) values[i] = scale * static_cast<float>(codes[i]);
}

}  // namespace muster::runtime
