#include "worker_runtime/arithmetic/thin_matrix.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "worker_runtime/arithmetic/one_nan.h"
#include "worker_runtime/arithmetic/power_elements.h"

namespace muster::runtime {

namespace {

/// The number of columns processed at a time, so that the sums stay in the L1 cache.
constexpr std::size_t tile = 256;

/// The number of lanes whose sums fit into registers.
constexpr std::size_t lane_group = 32;

/// Computes in the type `Sum`: f32 or f64.
template <class Sum>
Sum dot(const float* a, const float* b, std::size_t count) {
    const auto product = [=](std::size_t k) { return static_cast<Sum>(a[k]) * static_cast<Sum>(b[k]); };
    // Lanes beyond `count` are empty.
    const std::size_t lanes = std::min(std::bit_ceil(count), dot_lanes);
    Sum sums[dot_lanes];
    for (std::size_t first = 0; first < lanes; first += lane_group) {
        Sum own[lane_group] = {};
        std::size_t k = first;
        for (; k + lane_group <= count; k += dot_lanes) {
            for (std::size_t lane = 0; lane < lane_group; ++lane) own[lane] += product(k + lane);
        }
        for (std::size_t lane = 0; k + lane < count && lane < lane_group; ++lane) own[lane] += product(k + lane);
        std::copy_n(own, lane_group, sums + first);
    }
    for (std::size_t half = lanes / 2; half > 0; half /= 2) {
        for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    }
    return sums[0];
}

}  // namespace

void multiply(const float* m, std::size_t rows, std::size_t inner, const float* thin, std::size_t columns,
              float* product) {
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t c = 0; c < columns; ++c) {
            product[c * rows + i] = dot<float>(m + i * inner, thin + c * inner, inner);
        }
    }
}

void multiply_transposed(const float* m, std::size_t rows, std::size_t inner, const float* thin, std::size_t columns,
                         float* product) {
    std::fill_n(product, inner * columns, 0.0f);
    std::vector<float> part(columns * tile);
    for (std::size_t at = 0; at < inner; at += tile) {
        const std::size_t width = std::min(tile, inner - at);
        for (std::size_t first = 0; first < rows; first += part_rows) {
            std::fill(part.begin(), part.end(), 0.0f);
            for (std::size_t i = first; i < std::min(first + part_rows, rows); ++i) {
                const float* const row = m + i * inner + at;
                for (std::size_t c = 0; c < columns; ++c) {
                    const float factor = thin[c * rows + i];
                    float* const sums = part.data() + c * tile;
                    for (std::size_t j = 0; j < width; ++j) sums[j] += row[j] * factor;
                }
            }
            for (std::size_t c = 0; c < columns; ++c) {
                float* const out = product + c * inner + at;
                for (std::size_t j = 0; j < width; ++j) out[j] += part[c * tile + j];
            }
        }
    }
}

void multiply_out(const float* p, std::size_t rows, const float* q, std::size_t inner, std::size_t columns, float* m) {
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t at = 0; at < inner; at += tile) {
            const std::size_t width = std::min(tile, inner - at);
            float sums[tile] = {};
            for (std::size_t c = 0; c < columns; ++c) {
                const float factor = p[c * rows + i];
                const float* const column = q + c * inner + at;
                for (std::size_t j = 0; j < width; ++j) sums[j] += factor * column[j];
            }
            float* const out = m + i * inner + at;
            for (std::size_t j = 0; j < width; ++j) out[j] = with_one_nan(sums[j]);
        }
    }
}

void make_orthonormal(float* thin, std::size_t rows, std::size_t columns) {
    std::vector<double> table(columns * columns);
    std::vector<double> squares(columns);
    for (std::size_t a = 0; a < columns; ++a) {
        for (std::size_t b = a; b < columns; ++b) {
            table[a * columns + b] = dot<double>(thin + a * rows, thin + b * rows, rows);
        }
        squares[a] = table[a * columns + a];
    }
    for (std::size_t k = 0; k < columns; ++k) {
        for (std::size_t i = k + 1; i < columns; ++i) {
            for (std::size_t j = 0; j < columns; ++j) eliminate(table.data(), columns, k, i, j, squares[k]);
        }
    }
    for (std::size_t at = 0; at < rows; at += tile) {
        const std::size_t height = std::min(tile, rows - at);
        // From the last column to the first, because a column is computed from itself and those before it.
        for (std::size_t c = columns; c-- > 0;) {
            double sums[tile] = {};
            for (std::size_t d = 0; d <= c; ++d) {
                const double share = orthonormal_share(table.data(), columns, c, d, squares[c]);
                const float* const column = thin + d * rows + at;
                for (std::size_t i = 0; i < height; ++i) sums[i] += share * static_cast<double>(column[i]);
            }
            for (std::size_t i = 0; i < height; ++i) thin[c * rows + at + i] = static_cast<float>(sums[i]);
        }
    }
}

}  // namespace muster::runtime
