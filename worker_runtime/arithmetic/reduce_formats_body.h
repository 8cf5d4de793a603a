// Loads elements of each type into registers and stores them, in vectors of `vector_bytes`.
//
// Each translation unit is compiled for one instruction set: reduce_scalar.cpp, reduce_avx2.cpp and reduce_avx512.cpp
// define `vector_bytes` and include this. Everything here has internal linkage, and functions from other headers are
// always inlined. Otherwise the linker might keep the AVX-512 version of a shared inline function, and processors
// without AVX-512 would crash in it.
//
//   A format defines
//     Raw      the type of one load or store
//     Sum      the registers for it: one vector, or two for 16-bit types, which are summed in f32
//     decode   Raw -> Sum, exact
//     encode   Sum -> Raw, rounded to nearest even; the only NaN allowed is that of with_one_nan()
//
// Every NaN becomes the same quiet one (with_one_nan), because which of two NaNs an addition keeps depends on the
// operand order that the compiler chose. The replacement costs as much as the rest of the arithmetic on 16-bit types,
// so kernels first check whether a whole block has a NaN (any_nan, defined for each instruction set).
//
// A 16-bit vector is split into its even and its odd elements, by a shift and a mask within each 32-bit lane. No
// element moves to another lane, so joining them is as cheap.
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

/// The elements of one vector of 16-bit numbers, as f32.
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

/// A type whose elements are reduced without a conversion.
template <class T>
struct Plain {
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
    /// Rounds the upper half, by adding half of its last place, less one bit if it is even.
    static MUSTER_INLINE Bits rounded(Floats x) {
        const Bits bits = (Bits)x;
        return bits + 0x7fffu + ((bits >> 16) & 1u);
    }
};

/// binary16 by integer arithmetic, for processors without F16C.
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
        // A subnormal's fraction with an exponent of 2^-14 is too large by 2^-14; the subtraction is exact.
        const Bits least_normal = Bits{} + (113u << 23);
        const Bits subnormal = (Bits)((Floats)(magnitude + least_normal) - (Floats)least_normal);
        const Bits finite = magnitude < (1u << 23) ? subnormal : normal;
        return (Floats)(sign | (magnitude >= (31u << 23) ? infinite : finite));
    }

    static MUSTER_INLINE Bits narrowed(Floats x) {
        const Bits bits = (Bits)x;
        const Bits magnitude = bits & 0x7fffffffu;
        // Rounds to nearest even as bf16 does. A number that rounds to more than 65504 gets the bits of infinity.
        const Bits normal = (magnitude - bias_gap + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
        // After adding 0.5, the lowest bits of the fraction are the subnormal, rounded by the addition.
        const Bits half = Bits{} + (126u << 23);
        const Bits subnormal = (Bits)((Floats)magnitude + (Floats)half) - half;
        const Bits finite = magnitude < (113u << 23) ? subnormal : normal;
        const Bits nan_or_infinity = magnitude > 0x7f800000u ? Bits{} + 0x7e00u : Bits{} + 0x7c00u;
        return ((bits >> 16) & 0x8000u) | (magnitude >= (143u << 23) ? nan_or_infinity : finite);
    }
};

}  // namespace
