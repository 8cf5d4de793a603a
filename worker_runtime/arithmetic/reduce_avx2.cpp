#include <immintrin.h>

#include "worker_runtime/arithmetic/reduce_instruction_sets.h"

namespace {
constexpr int vector_bytes = 32;
}  // namespace

#include "worker_runtime/arithmetic/reduce_formats_body.h"

namespace {

/// `even` has the lower half of the elements, `odd` the upper half: the instructions keep neighbours together.
struct F16 {
    using Element = std::uint16_t;
    using Raw = Bits;
    using Sum = FloatPair;
    static MUSTER_INLINE Sum decode(Raw raw) {
        const auto halves = (__m256i)raw;
        return {(Floats)_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                (Floats)_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
    }
    static MUSTER_INLINE Raw encode(Sum sum) { return (Raw)_mm256_set_m128i(narrowed(sum.odd), narrowed(sum.even)); }
    static MUSTER_INLINE __m128i narrowed(Floats x) {
        return _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
};

template <class Integers>
MUSTER_INLINE bool any_nan(Integers /*a*/, Integers /*b*/) {
    return false;
}
MUSTER_INLINE bool any_nan(Floats a, Floats b) {
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q)) != 0;
}
MUSTER_INLINE bool any_nan(Doubles a, Doubles b) {
    return _mm256_movemask_pd(_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_UNORD_Q)) != 0;
}

}  // namespace

#include "worker_runtime/arithmetic/reduce_kernels_body.h"

namespace muster::runtime {

void reduce_avx2(const Reduction& reduction) {
    reduce_here(reduction);
}

}  // namespace muster::runtime
