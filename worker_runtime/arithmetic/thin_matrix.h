// Products with matrices of few columns. Matrices are stored by rows, thin ones by columns. The order of additions is
// fixed (power_elements.h).
#pragma once

#include <cstddef>

namespace muster::runtime {

/// product (rows x columns) = m (rows x inner) thin (inner x columns).
void multiply(const float* m, std::size_t rows, std::size_t inner, const float* thin, std::size_t columns,
              float* product);

/// product (inner x columns) = m' thin, with m (rows x inner), thin (rows x columns).
void multiply_transposed(const float* m, std::size_t rows, std::size_t inner, const float* thin, std::size_t columns,
                         float* product);

/// m (rows x inner) = p q', with p (rows x columns), q (inner x columns).
void multiply_out(const float* p, std::size_t rows, const float* q, std::size_t inner, std::size_t columns, float* m);

/// Makes the columns orthonormal (Gram-Schmidt), in order. A column that depends on those before it becomes zero. NaNs
/// and infinities leave a NaN in their column.
void make_orthonormal(float* thin, std::size_t rows, std::size_t columns);

}  // namespace muster::runtime
