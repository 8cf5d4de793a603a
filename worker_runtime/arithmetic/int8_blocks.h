// Numbers as 8-bit integers with one scale per block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::runtime {

/// The number of elements that share a scale: its four bytes add less than 1 % to the block.
inline constexpr std::size_t int8_block = 512;

/// Returns the elements of a rank's piece: a multiple of int8_block. The last pieces may extend beyond the bucket.
std::size_t int8_piece_elements(std::size_t bucket_elements, std::size_t world);
/// Returns the bytes of a piece in the wire format: samples, a scale for each block, the codes.
std::size_t int8_piece_bytes(std::size_t elements);

/// Encodes one block: the codes of values[i] x factor + lost[i]; the rounding errors go to lost[i]. Returns the scale:
/// the sum is about scale x codes[i], with |codes[i]| <= 127. If the block has a NaN or an infinity, the scale is NaN,
/// the codes are 0 for zeros and 1 for the rest, and lost[i] is 0, because a value that cannot be sent must not return
/// in the next step.
float quantise(const float* values, float factor, std::size_t count, float* lost, std::int8_t* codes);

/// sums[i] += factor x codes[i]. A code of 0 adds nothing, even if the factor is NaN.
void add_scaled(float* sums, const std::int8_t* codes, std::size_t count, float factor);

/// values[i] = scale x codes[i]. A code of 0 gives 0, even if the scale is NaN.
void dequantise(const std::int8_t* codes, std::size_t count, float scale, float* values);

}  // namespace muster::runtime
