// Whole arrays between f32 and the 16-bit formats. On x86 with AVX2 and F16C at memory speed, elsewhere by the
// compiler's means; the bits are the same.
#include <cstring>

#include "rendezvous/base/check.h"
#include "worker_runtime/engine/gradient_math.h"
#include "worker_runtime/engine/half_formats.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace muster::runtime {

namespace {

using Half = std::uint16_t;

void narrow(const float* from, Half* to, std::size_t count, DataType type) {
    if (type == DataType::bf16) {
        for (std::size_t i = 0; i < count; ++i) to[i] = bf16_of_f32(from[i]);
    } else {
        for (std::size_t i = 0; i < count; ++i) to[i] = f16_of_f32(from[i]);
    }
}

void widen(const Half* from, float* to, std::size_t count, DataType type) {
    if (type == DataType::bf16) {
        for (std::size_t i = 0; i < count; ++i) to[i] = f32_of_bf16(from[i]);
    } else {
        for (std::size_t i = 0; i < count; ++i) to[i] = f32_of_f16(from[i]);
    }
}

#if defined(__x86_64__)

constexpr std::size_t vector_elements = 8;

__attribute__((target("avx2,f16c"))) __m128i bf16_of_vector(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000))),
                                          _mm256_set1_epi32(0x7fc00000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}

/// Gives the number of elements done: all but a rest of less than a vector.
__attribute__((target("avx2,f16c"))) std::size_t narrow_vectors(const float* from, Half* to, std::size_t count,
                                                                DataType type) {
    std::size_t i = 0;
    for (; i + vector_elements <= count; i += vector_elements) {
        const __m256 x = _mm256_loadu_ps(from + i);
        const __m128i y = type == DataType::bf16 ? bf16_of_vector(x) : _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), y);
    }
    return i;
}

__attribute__((target("avx2,f16c"))) std::size_t widen_vectors(const Half* from, float* to, std::size_t count,
                                                               DataType type) {
    std::size_t i = 0;
    for (; i + vector_elements <= count; i += vector_elements) {
        const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        const __m256 y = type == DataType::bf16 ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16))
                                                : _mm256_cvtph_ps(x);
        _mm256_storeu_ps(to + i, y);
    }
    return i;
}

bool has_vectors() {
    static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    return has;
}

#else

std::size_t narrow_vectors(const float*, Half*, std::size_t, DataType) {
    return 0;
}
std::size_t widen_vectors(const Half*, float*, std::size_t, DataType) {
    return 0;
}
bool has_vectors() {
    return false;
}

#endif

bool is_half(DataType type) {
    return type == DataType::f16 || type == DataType::bf16;
}

}  // namespace

void convert(const ConstBuffer& from, const Buffer& to) {
    MUSTER_CHECK(from.count == to.count, from.count, to.count);
    const std::size_t count = from.count;
    if (from.type == DataType::f32 && is_half(to.type)) {
        const auto* in = static_cast<const float*>(from.data);
        auto* out = static_cast<Half*>(to.data);
        const std::size_t done = has_vectors() ? narrow_vectors(in, out, count, to.type) : 0;
        narrow(in + done, out + done, count - done, to.type);
    } else if (is_half(from.type) && to.type == DataType::f32) {
        const auto* in = static_cast<const Half*>(from.data);
        auto* out = static_cast<float*>(to.data);
        const std::size_t done = has_vectors() ? widen_vectors(in, out, count, from.type) : 0;
        widen(in + done, out + done, count - done, from.type);
    } else {
        MUSTER_CHECK(from.type == to.type, name(from.type), name(to.type));
        if (count > 0) std::memcpy(to.data, from.data, to.size_bytes());
    }
}

}  // namespace muster::runtime
