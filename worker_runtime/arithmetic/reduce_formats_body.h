// How elements of each type are read into registers and written back, in vectors of `vector_bytes`.
//
// Part of a translation unit that was compiled for one instruction set: reduce_scalar.cpp, reduce_avx2.cpp and
// reduce_avx512.cpp define `vector_bytes` and include this. Everything here has internal linkage and calls nothing from
// another header that is not always inlined: an inline function shared with the rest of the program could be kept in
// its AVX-512 version, and would then be the one that processors without AVX-512 run into.
//
// A format gives
//   Raw      what one load or store moves
//   Sum      the registers that it becomes: one vector, or two for 16-bit types, which are summed in f32
//   decode   Raw -> Sum, exactly
//   encode   Sum -> Raw, rounded to nearest even; not for NaNs other than with_one_nan()'s
//
// Every NaN becomes the same quiet one (with_one_nan), because which of two NaNs an addition keeps depends on the order
// in which a compiler puts its operands. That costs as much as the rest of the arithmetic on 16-bit types, so that
// kernels look first whether there is a NaN in a whole block (any_nan, which each instruction set brings).
//
// A 16-bit vector is split into its even and its odd elements, which a shift and a mask do within each 32-bit lane;
// no element moves to another lane, so that joining them again is as cheap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker_runtime/core/always_inline.h"

namespace {

template <class T>
struct VectorOf {
    typedef T Type __attribute__((vector_size(vector_bytes)));
};
using Bits = VectorOf<std::uint32_t>::Type;
using Floats = VectorOf<float>::Type;
using Doubles = VectorOf<double>::Type;

/// The elements of one vector of 16-bit numbers.
struct FloatPair {
    Floats even;
    Floats odd;
};

template <class Integers>
MUSTER_INLINE Integers with_one_nan(Integers x) {
    return x;
}
MUSTER_INLINE Floats with_one_nan(Floats x) {
    return x == x ? x : (Floats)(Bits{} + 0x7fc00000u);
}
MUSTER_INLINE Doubles with_one_nan(Doubles x) {
    using Words = VectorOf<std::uint64_t>::Type;
    return x == x ? x : (Doubles)(Words{} + 0x7ff8000000000000u);
}
MUSTER_INLINE FloatPair with_one_nan(FloatPair x) {
    return {with_one_nan(x.even), with_one_nan(x.odd)};
}

struct F32 {
    using Element = float;
    using Raw = Floats;
    using Sum = Floats;
    static MUSTER_INLINE Sum decode(Raw raw) { return raw; }
    static MUSTER_INLINE Raw encode(Sum sum) { return sum; }
};

struct F64 {
    using Element = double;
    using Raw = Doubles;
    using Sum = Doubles;
    static MUSTER_INLINE Sum decode(Raw raw) { return raw; }
    static MUSTER_INLINE Raw encode(Sum sum) { return sum; }
};

template <class T>
struct Integer {
    using Element = T;
    using Raw = typename VectorOf<T>::Type;
    using Sum = Raw;
    static MUSTER_INLINE Sum decode(Raw raw) { return raw; }
    static MUSTER_INLINE Raw encode(Sum sum) { return sum; }
};

struct Bf16 {
    using Element = std::uint16_t;
    using Raw = Bits;
    using Sum = FloatPair;
    static MUSTER_INLINE Sum decode(Raw raw) { return {(Floats)(raw << 16), (Floats)(raw & 0xffff0000u)}; }
    static MUSTER_INLINE Raw encode(Sum sum) { return (rounded(sum.even) >> 16) | (rounded(sum.odd) & 0xffff0000u); }
    /// The upper half is right: half of its last place was added, less one bit where it is even already.
    static MUSTER_INLINE Bits rounded(Floats x) {
        const Bits bits = (Bits)x;
        return bits + 0x7fffu + ((bits >> 16) & 1u);
    }
};

/// binary16 by integer arithmetic, for processors without an instruction for it.
struct SoftwareF16 {
    using Element = std::uint16_t;
    using Raw = Bits;
    using Sum = FloatPair;
    static MUSTER_INLINE Sum decode(Raw raw) { return {widened(raw & 0xffffu), widened(raw >> 16)}; }
    static MUSTER_INLINE Raw encode(Sum sum) { return narrowed(sum.even) | (narrowed(sum.odd) << 16); }

    static constexpr std::uint32_t bias_gap = (127u - 15u) << 23;  ///< Difference between the exponents of f32 and f16.

    static MUSTER_INLINE Floats widened(Bits half) {
        const Bits sign = (half & 0x8000u) << 16;
        const Bits magnitude = (half & 0x7fffu) << 13;
        const Bits normal = magnitude + bias_gap;
        const Bits infinite = normal + bias_gap;
        // A subnormal's fraction behind an exponent of 2^-14 is 2^-14 too large; the subtraction is exact.
        const Bits least_normal = Bits{} + (113u << 23);
        const Bits subnormal = (Bits)((Floats)(magnitude + least_normal) - (Floats)least_normal);
        const Bits finite = magnitude < (1u << 23) ? subnormal : normal;
        return (Floats)(sign | (magnitude >= (31u << 23) ? infinite : finite));
    }

    static MUSTER_INLINE Bits narrowed(Floats x) {
        const Bits bits = (Bits)x;
        const Bits magnitude = bits & 0x7fffffffu;
        // To nearest even as in bf16; what rounds up beyond 65504 lands on infinity's pattern by itself.
        const Bits normal = (magnitude - bias_gap + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
        // Adding 0.5 leaves the subnormal in the lowest bits of the sum's fraction, rounded by the addition.
        const Bits half = Bits{} + (126u << 23);
        const Bits subnormal = (Bits)((Floats)magnitude + (Floats)half) - half;
        const Bits finite = magnitude < (113u << 23) ? subnormal : normal;
        const Bits nan_or_infinity = magnitude > 0x7f800000u ? Bits{} + 0x7e00u : Bits{} + 0x7c00u;
        return ((bits >> 16) & 0x8000u) | (magnitude >= (143u << 23) ? nan_or_infinity : finite);
    }
};

}  // namespace
