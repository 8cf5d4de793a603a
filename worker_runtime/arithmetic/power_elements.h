// PowerSGD's arithmetic on single numbers, and the order of its sums, for the host and for GPUs, so that both have the
// same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_runtime/core/host_and_device.h"

namespace muster::runtime {

/// A sum over a line of numbers is made in so many lanes: number k is added to lane k % dot_lanes. Then the upper half
/// of the lanes is added to the lower one, until one is left.
inline constexpr std::size_t dot_lanes = 256;
/// A sum over the rows of a matrix is made of parts of so many rows, which are then added up in their order.
inline constexpr std::size_t part_rows = 64;
inline constexpr std::size_t power_columns_max = 64;

/// Element `i` of the Q that a parameter starts with: spread out between -1 and 1, the same on every rank.
MUSTER_HOST_AND_DEVICE inline float power_start(std::int32_t parameter, std::uint64_t i) {
    // SplitMix64: Steele, Lea, Flood 2014.
    std::uint64_t x = (static_cast<std::uint64_t>(parameter) << 40) + i + 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return static_cast<float>((x ^ (x >> 31)) >> 40) * 0x1p-23f - 1;
}

/// What is not sent of `value`, and waits for the next step. What is no number, or became none, must not come back.
MUSTER_HOST_AND_DEVICE inline float left_over(float value, float sent) {
    const float rest = value - sent;
    return rest - rest == 0 ? rest : 0.0f;
}

// ---- orthonormal columns ----
//
// The products of all pairs of columns, in f64, say how the columns are to be combined; the columns themselves, which
// may be long, are read but twice. Gaussian elimination of that table, beside the unit matrix, leaves in row k how
// column k is made orthogonal to those before it, and on the diagonal the square of the length that it then has. The
// table is symmetric, so its upper half is enough; the lower one takes what becomes of the unit matrix, without the
// ones on its diagonal.

/// Of a column that depends on those before it rounding leaves noise, which must not be blown up to length one.
/// `square`: of its length before; `rest`: after.
MUSTER_HOST_AND_DEVICE inline bool depends(double rest, double square) {
    return rest <= 1e-10 * square;
}

/// Entry (i, j) in step k of the elimination; the entries of a step have nothing to do with each other. `square` is
/// column k's.
MUSTER_HOST_AND_DEVICE inline void eliminate(double* table, std::size_t columns, std::size_t k, std::size_t i,
                                             std::size_t j, double square) {
    if (i <= k || (j > k && j < i)) return;
    const double* const row = table + k * columns;
    const double factor = depends(row[k], square) ? 0 : row[i] / row[k];
    double& entry = table[i * columns + j];
    entry = j == k ? -factor : entry - factor * row[j];
}

/// How much of column d is in the orthonormal column c >= d. A dependent column is zero, but where it has infinities:
/// times zero these are NaNs.
MUSTER_HOST_AND_DEVICE inline double orthonormal_share(const double* table, std::size_t columns, std::size_t c,
                                                       std::size_t d, double square) {
    const double rest = table[c * columns + c];
    if (depends(rest, square)) return 0;
    // std::sqrt of f64 is no function of GPUs without CUDA's headers.
    return (c == d ? 1 : table[c * columns + d]) / __builtin_sqrt(rest);
}

}  // namespace muster::runtime
