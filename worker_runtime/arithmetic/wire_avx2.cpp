#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace {

/// The instruction keeps bits of a NaN, but f16_of_f32() has only one NaN per sign.
std::size_t narrow_f16_vectors(const float* from, std::uint16_t* to, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256 x = _mm256_loadu_ps(from + i);
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        const __m128i is_nan = _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
        const __m128i y = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m128i sign = _mm_and_si128(y, _mm_set1_epi16(static_cast<short>(0x8000)));
        const __m128i quiet = _mm_or_si128(sign, _mm_set1_epi16(0x7e00));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_blendv_epi8(y, quiet, is_nan));
    }
    return i;
}

std::size_t widen_f16_vectors(const std::uint16_t* from, float* to, std::size_t count) {
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(x));
    }
    return i;
}

}  // namespace

#include "worker_runtime/arithmetic/wire_kernels_body.h"

namespace muster::runtime {
constexpr WireKernels wire_avx2 = these_kernels;
}  // namespace muster::runtime
