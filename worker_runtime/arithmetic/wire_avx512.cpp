#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace {

/// The instruction keeps bits of a NaN, but f16_of_f32() has only one NaN per sign.
std::size_t narrow_f16_vectors(const float* from, std::uint16_t* to, std::size_t count) {
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m512 x = _mm512_loadu_ps(from + i);
        const __m256i y = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m256i sign = _mm256_and_si256(y, _mm256_set1_epi16(static_cast<short>(0x8000)));
        const __m256i quiet = _mm256_or_si256(sign, _mm256_set1_epi16(0x7e00));
        const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_mask_mov_epi16(y, is_nan, quiet));
    }
    return i;
}

std::size_t widen_f16_vectors(const std::uint16_t* from, float* to, std::size_t count) {
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(x));
    }
    return i;
}

}  // namespace

#include "worker_runtime/arithmetic/wire_kernels_body.h"

namespace muster::runtime {
constexpr WireKernels wire_avx512 = these_kernels;
}  // namespace muster::runtime
