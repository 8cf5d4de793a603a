// PowerSGD's arithmetic on single numbers, and the order of its sums, shared by the host and GPUs so that both give the
// same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_runtime/core/host_and_device.h"

namespace muster::runtime {

/// The number of lanes of a sum over a line of numbers: number k is added to lane k % dot_lanes. Then the upper half of
/// the lanes is added to the lower half, until one lane is left.
inline constexpr std::size_t dot_lanes = 256;
/// A sum over the rows of a matrix consists of parts of this many rows, which are then added in order.
inline constexpr std::size_t part_rows = 64;
inline constexpr std::size_t power_columns_max = 64;

/// Returns element `i` of a parameter's initial Q: pseudorandom between -1 and 1, the same on every rank.
MUSTER_HOST_AND_DEVICE inline float power_start(std::int32_t parameter, std::uint64_t i) {
    // SplitMix64: Steele, Lea, Flood 2014.
    std::uint64_t x = (static_cast<std::uint64_t>(parameter) << 40) + i + 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return static_cast<float>((x ^ (x >> 31)) >> 40) * 0x1p-23f - 1;
}

/// Returns the residual of `value`. A result that is NaN or infinite becomes 0, so that it does not return.
MUSTER_HOST_AND_DEVICE inline float left_over(float value, float sent) {
    const float rest = value - sent;
    return rest - rest == 0 ? rest : 0.0f;
}

// ---- orthonormal columns ----
//
// The table has the products of all pairs of columns, in f64. It determines how the columns are combined, so the
// columns themselves, which may be long, are read only twice. Gaussian elimination of the table together with the unit
// matrix gives, in row k, how column k becomes orthogonal to the columns before it, and on the diagonal the square of
// its remaining length. The table is symmetric, so only its upper half is used; the lower half stores the transformed
// unit matrix, without the ones on its diagonal.

/// True if a column depends on those before it: rounding leaves only noise, which must not be scaled to length one.
/// `square` is its squared length before, `rest` after the elimination.
MUSTER_HOST_AND_DEVICE inline bool depends(double rest, double square) {
    return rest <= 1e-10 * square;
}

/// Updates entry (i, j) in step k of the elimination; the entries of one step are independent. `square` is column
/// k's.
MUSTER_HOST_AND_DEVICE inline void eliminate(double* table, std::size_t columns, std::size_t k, std::size_t i,
                                             std::size_t j, double square) {
    if (i <= k || (j > k && j < i)) return;
    const double* const row = table + k * columns;
    const double factor = depends(row[k], square) ? 0 : row[i] / row[k];
    double& entry = table[i * columns + j];
    entry = j == k ? -factor : entry - factor * row[j];
}

/// Returns the factor of column d in the orthonormal column c >= d. A dependent column becomes zero, except that its
/// infinities become NaNs (zero times infinity).
MUSTER_HOST_AND_DEVICE inline double orthonormal_share(const double* table, std::size_t columns, std::size_t c,
                                                       std::size_t d, double square) {
    const double rest = table[c * columns + c];
    if (depends(rest, square)) return 0;
    // GPUs have no std::sqrt of f64 without CUDA's headers.
    return (c == d ? 1 : table[c * columns + d]) / __builtin_sqrt(rest);
}

}  // namespace muster::runtime
