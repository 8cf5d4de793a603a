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
MUSTER_INLINE V add(V a, V b) {
    return a + b;
}
template <class V>
MUSTER_INLINE V lesser(V a, V b) {
    return ((b < a) | (b != b)) ? b : a;
}
template <class V>
MUSTER_INLINE V greater(V a, V b) {
    return ((b > a) | (b != b)) ? b : a;
}
template <class V, class T>
MUSTER_INLINE V times(V a, T factor) {
    return a * factor;
}
MUSTER_INLINE FloatPair add(FloatPair a, FloatPair b) {
    return {a.even + b.even, a.odd + b.odd};
}
MUSTER_INLINE FloatPair lesser(FloatPair a, FloatPair b) {
    return {lesser(a.even, b.even), lesser(a.odd, b.odd)};
}
MUSTER_INLINE FloatPair greater(FloatPair a, FloatPair b) {
    return {greater(a.even, b.even), greater(a.odd, b.odd)};
}
MUSTER_INLINE FloatPair times(FloatPair a, float factor) {
    return {a.even * factor, a.odd * factor};
}
MUSTER_INLINE FloatPair times(FloatPair a, FloatPair b) {
    return {a.even * b.even, a.odd * b.odd};
}

template <class Integers>
MUSTER_INLINE bool has_nan(const Integers* /*sums*/, std::size_t /*count*/) {
    return false;
}
MUSTER_INLINE bool has_nan(const Floats* sums, std::size_t count) {
    bool found = false;
#pragma GCC unroll 2
    for (std::size_t i = 0; i < count; i += 2) found |= any_nan(sums[i], sums[i + 1]);
    return found;
}
MUSTER_INLINE bool has_nan(const Doubles* sums, std::size_t count) {
    bool found = false;
#pragma GCC unroll 2
    for (std::size_t i = 0; i < count; i += 2) found |= any_nan(sums[i], sums[i + 1]);
    return found;
}
MUSTER_INLINE bool has_nan(const FloatPair* sums, std::size_t count) {
    bool found = false;
#pragma GCC unroll 2
    for (std::size_t i = 0; i < count; ++i) found |= any_nan(sums[i].even, sums[i].odd);
    return found;
}

// ---- reductions: what is done with the first input, each further one, and the result ----

struct Unchanged {
    template <class Sum>
    MUSTER_INLINE Sum first(Sum x) const {
        return x;
    }
    template <class Sum>
    MUSTER_INLINE Sum last(Sum sum) const {
        return sum;
    }
};

struct AddAll : Unchanged {
    template <class Sum>
    MUSTER_INLINE Sum next(Sum sum, Sum x, int) const {
        return add(sum, x);
    }
};

struct MultiplyAll : Unchanged {
    template <class Sum>
    MUSTER_INLINE Sum next(Sum product, Sum x, int) const {
        return times(product, x);
    }
};

struct AndAll : Unchanged {
    template <class Sum>
    MUSTER_INLINE Sum next(Sum sum, Sum x, int) const {
        return sum & x;
    }
};

struct OrAll : Unchanged {
    template <class Sum>
    MUSTER_INLINE Sum next(Sum sum, Sum x, int) const {
        return sum | x;
    }
};

struct XorAll : Unchanged {
    template <class Sum>
    MUSTER_INLINE Sum next(Sum sum, Sum x, int) const {
        return sum ^ x;
    }
};

struct TakeLeast : Unchanged {
    template <class Sum>
    MUSTER_INLINE Sum next(Sum sum, Sum x, int) const {
        return lesser(sum, x);
    }
};

struct TakeGreatest : Unchanged {
    template <class Sum>
    MUSTER_INLINE Sum next(Sum sum, Sum x, int) const {
        return greater(sum, x);
    }
};

template <class Scalar>
struct Average : AddAll {
    Scalar reciprocal;
    explicit Average(const Reduction& of)
        : reciprocal(of.reciprocal != 0 ? static_cast<Scalar>(of.reciprocal)
                                        : Scalar{1} / static_cast<Scalar>(of.input_count)) {}
    template <class Sum>
    MUSTER_INLINE Sum last(Sum sum) const {
        return times(sum, reciprocal);
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
        return times(x, static_cast<Scalar>(weights[0]));
    }
    template <class Sum>
    MUSTER_INLINE Sum next(Sum sum, Sum x, int input) const {
        return add(sum, times(x, static_cast<Scalar>(weights[input])));
    }
    template <class Sum>
    MUSTER_INLINE Sum last(Sum sum) const {
        return times(sum, reciprocal);
    }
};

}  // namespace
