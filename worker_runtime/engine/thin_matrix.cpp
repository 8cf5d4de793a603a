#include "worker_runtime/engine/thin_matrix.h"

#include <algorithm>
#include <cmath>

namespace muster::runtime {

void multiply(const float* m, std::size_t rows, std::size_t inner, const float* thin, std::size_t columns,
              float* product) {
    std::fill_n(product, rows * columns, 0.0f);
    for (std::size_t i = 0; i < rows; ++i) {
        float* const out = product + i * columns;
        for (std::size_t j = 0; j < inner; ++j) {
            const float factor = m[i * inner + j];
            for (std::size_t c = 0; c < columns; ++c) out[c] += factor * thin[j * columns + c];
        }
    }
}

void multiply_transposed(const float* m, std::size_t rows, std::size_t inner, const float* thin, std::size_t columns,
                         float* product) {
    std::fill_n(product, inner * columns, 0.0f);
    for (std::size_t i = 0; i < rows; ++i) {
        const float* const factors = thin + i * columns;
        for (std::size_t j = 0; j < inner; ++j) {
            for (std::size_t c = 0; c < columns; ++c) product[j * columns + c] += m[i * inner + j] * factors[c];
        }
    }
}

void multiply_out(const float* p, std::size_t rows, const float* q, std::size_t inner, std::size_t columns, float* m) {
    for (std::size_t i = 0; i < rows; ++i) {
        for (std::size_t j = 0; j < inner; ++j) {
            float sum = 0;
            for (std::size_t c = 0; c < columns; ++c) sum += p[i * columns + c] * q[j * columns + c];
            m[i * inner + j] = sum;
        }
    }
}

void make_orthonormal(float* thin, std::size_t rows, std::size_t columns) {
    const auto dot = [&](std::size_t a, std::size_t b) {
        double sum = 0;
        for (std::size_t i = 0; i < rows; ++i) sum += double{thin[i * columns + a]} * thin[i * columns + b];
        return sum;
    };
    for (std::size_t c = 0; c < columns; ++c) {
        const double before = dot(c, c);
        for (std::size_t d = 0; d < c; ++d) {
            const double part = dot(c, d);
            for (std::size_t i = 0; i < rows; ++i) {
                thin[i * columns + c] = static_cast<float>(thin[i * columns + c] - part * thin[i * columns + d]);
            }
        }
        const double square = dot(c, c);
        // What rounding left of a dependent column is noise, and must not be blown up to length one.
        const double factor = square > 1e-10 * before ? 1 / std::sqrt(square) : (std::isnan(square) ? square : 0);
        for (std::size_t i = 0; i < rows; ++i) {
            thin[i * columns + c] = static_cast<float>(thin[i * columns + c] * factor);
        }
    }
}

}  // namespace muster::runtime
