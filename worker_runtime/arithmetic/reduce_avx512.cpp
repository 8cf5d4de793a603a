#include <immintrin.h>

#include "worker_runtime/arithmetic/reduce_instruction_sets.h"

namespace {
constexpr int vector_bytes = 64;
}  // namespace

#include "worker_runtime/arithmetic/reduce_formats_body.h"

namespace {

/// `even` has the lower half of the elements, `odd` the upper half: the instructions keep neighbours together.
struct F16 {
    using Element = std::uint16_t;
    using Raw = Bits;
    using Sum = FloatPair;
    static MUSTER_INLINE Sum decode(Raw raw) {
        const auto halves = (__m512i)raw;
        return {(Floats)_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
                (Floats)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))};
    }
    static MUSTER_INLINE Raw encode(Sum sum) {
        return (Raw)_mm512_inserti64x4(_mm512_castsi256_si512(narrowed(sum.even)), narrowed(sum.odd), 1);
    }
    static MUSTER_INLINE __m256i narrowed(Floats x) {
        return _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
};

template <class Integers>
MUSTER_INLINE bool any_nan(Integers /*a*/, Integers /*b*/) {
    return false;
}
MUSTER_INLINE bool any_nan(Floats a, Floats b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q) != 0;
}
MUSTER_INLINE bool any_nan(Doubles a, Doubles b) {
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_UNORD_Q) != 0;
}

}  // namespace

#include "worker_runtime/arithmetic/reduce_kernels_body.h"

namespace muster::runtime {

void reduce_avx512(const Reduction& reduction) {
    reduce_here(reduction);
}

}  // namespace muster::runtime
