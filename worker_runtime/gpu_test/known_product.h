// Two random matrices of whole numbers, laid out as the kernels of kernels/check_kernels.h read them, with the checksum
// of their product. Pure.
//
// With weights u and v of rows and columns, the checksum sum(u[i] * v[j] * C[i][j]) of C = A * B is
// sum over k of (sum(u[i] * A[i][k]) * sum(v[j] * B[k][j])): the host reads A and B once, where the GPU multiplies
// them.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::runtime {

template <class Element>
struct KnownProduct {
    std::uint32_t size = 0;   ///< Rows of A, columns of B.
    std::uint32_t depth = 0;  ///< Columns of A, rows of B.
    std::vector<Element> a;
    std::vector<Element> b;
    std::uint64_t checksum = 0;
};

/// For CheckHalves (f16). `size` is a multiple of 256 and at most 4,096.
KnownProduct<std::uint16_t> known_halves(std::uint32_t size, std::uint64_t seed);
/// The same numbers for CheckFloats.
KnownProduct<float> known_floats(std::uint32_t size, std::uint64_t seed);

}  // namespace muster::runtime
