// Numbers as 8-bit integers with a scale for each block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::runtime {

/// Elements that share a scale: its four bytes are less than 1 % of the block.
inline constexpr std::size_t int8_block = 512;

/// How a bucket is cut into a piece for each rank: a multiple of a block; the last pieces may reach beyond the bucket.
std::size_t int8_piece_elements(std::size_t bucket_elements, std::size_t world);
/// A piece on the wire: samples, a scale for each block, the codes.
std::size_t int8_piece_bytes(std::size_t elements);

/// One block: makes codes of values[i] x factor + lost[i], and leaves in lost[i] what these lose again. Gives the
/// scale: the sum is about scale x codes[i], with |codes[i]| <= 127. A block that holds a NaN or an infinity has the
/// scale NaN, and the codes 1, 0 for what is zero; it loses nothing: what cannot be sent must not come back with the
/// next step.
float quantise(const float* values, float factor, std::size_t count, float* lost, std::int8_t* codes);

/// sums[i] += factor x codes[i]; a code of 0 adds nothing, also where the factor is NaN.
void add_scaled(float* sums, const std::int8_t* codes, std::size_t count, float factor);

/// values[i] = scale x codes[i]; a code of 0 is zero, also where the scale is NaN.
void dequantise(const std::int8_t* codes, std::size_t count, float scale, float* values);

}  // namespace muster::runtime
