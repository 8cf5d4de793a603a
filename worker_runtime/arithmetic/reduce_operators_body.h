// What each reduction does with two vectors, for one instruction set. The rules of reduce_formats_body.h apply here
// too.
#pragma once

#include "worker_runtime/arithmetic/reduce_formats_body.h"
#include "worker_runtime/arithmetic/reduce_kernels.h"

namespace {

using muster::ReduceOp;
using muster::runtime::reciprocal_of;
using muster::runtime::Reduction;

// ---- operations on two vectors; pairs of vectors are processed one after the other ----

template <class V>
MUSTER_INLINE V lesser(V a, V b) {
    return ((b < a) | (b != b)) ? b : a;
}
template <class V>
MUSTER_INLINE V greater(V a, V b) {
    return ((b > a) | (b != b)) ? b : a;
}
MUSTER_INLINE FloatPair operator+(FloatPair a, FloatPair b) {
    return {a.even + b.even, a.odd + b.odd};
}
MUSTER_INLINE FloatPair lesser(FloatPair a, FloatPair b) {
    return {lesser(a.even, b.even), lesser(a.odd, b.odd)};
}
MUSTER_INLINE FloatPair greater(FloatPair a, FloatPair b) {
    return {greater(a.even, b.even), greater(a.odd, b.odd)};
}
MUSTER_INLINE FloatPair operator*(FloatPair a, float factor) {
    return {a.even * factor, a.odd * factor};
}
MUSTER_INLINE FloatPair operator*(FloatPair a, FloatPair b) {
    return {a.even * b.even, a.odd * b.odd};
}

MUSTER_INLINE bool any_nan(FloatPair a, FloatPair b) {
    return any_nan(a.even, a.odd) | any_nan(b.even, b.odd);
}
/// `count` is even.
template <class Sum>
MUSTER_INLINE bool has_nan(const Sum* sums, std::size_t count) {
    bool found = false;
#pragma GCC unroll 2
    for (std::size_t i = 0; i < count; i += 2) found |= any_nan(sums[i], sums[i + 1]);
    return found;
}

// ---- reductions: what is done with the first input, each further one, and the result ----

/// Combines each further input, and changes neither the first one nor the result.
template <ReduceOp op>
struct Fold {
    template <class Sum>
    MUSTER_INLINE Sum first(Sum x) const {
        return x;
    }
    template <class Sum>
    MUSTER_INLINE Sum next(Sum sum, Sum x, int) const {
        if constexpr (op == ReduceOp::sum) return sum + x;
        if constexpr (op == ReduceOp::product) return sum * x;
        if constexpr (op == ReduceOp::min) return lesser(sum, x);
        if constexpr (op == ReduceOp::max) return greater(sum, x);
        if constexpr (op == ReduceOp::band) return sum & x;
        if constexpr (op == ReduceOp::bor) return sum | x;
        if constexpr (op == ReduceOp::bxor) return sum ^ x;
    }
    template <class Sum>
    MUSTER_INLINE Sum last(Sum sum) const {
        return sum;
    }
};

template <class Scalar>
struct Average : Fold<ReduceOp::sum> {
    Scalar reciprocal;
    explicit Average(const Reduction& of)
        : reciprocal(of.reciprocal != 0 ? static_cast<Scalar>(of.reciprocal)
                                        : Scalar{1} / static_cast<Scalar>(of.input_count)) {}
    template <class Sum>
    MUSTER_INLINE Sum last(Sum sum) const {
        return sum * reciprocal;
    }
};

/// A premul_sum is one whose reciprocal is 1, which changes no bit.
template <class Scalar>
struct WeightedAverage {
    const double* weights;
    Scalar reciprocal;
    explicit WeightedAverage(const Reduction& of)
        : weights(of.weights),
          reciprocal(static_cast<Scalar>(of.reduce == ReduceOp::premul_sum ? 1
                                         : of.reciprocal != 0              ? of.reciprocal
                                                              : reciprocal_of(of.type, of.weights, of.input_count))) {}
    template <class Sum>
    MUSTER_INLINE Sum first(Sum x) const {
        return x * static_cast<Scalar>(weights[0]);
    }
    template <class Sum>
    MUSTER_INLINE Sum next(Sum sum, Sum x, int input) const {
        return sum + x * static_cast<Scalar>(weights[input]);
    }
    template <class Sum>
    MUSTER_INLINE Sum last(Sum sum) const {
        return sum * reciprocal;
    }
};

}  // namespace
