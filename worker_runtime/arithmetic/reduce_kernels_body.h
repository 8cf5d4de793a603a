// reduce() for one instruction set. The rules of reduce_formats_body.h apply here too. The including file defines
// `F16`, the format for its instructions, and any_nan(a, b) for vectors of f32 and of f64.
//
// A kernel reads memory once. For each block it loads the inputs in rank order, combines them in registers, and only
// then stores to all outputs. An output may therefore be an input.
#pragma once

#include "worker_runtime/arithmetic/reduce_formats_body.h"
#include "worker_runtime/arithmetic/reduce_kernels.h"

namespace {

using muster::DataType;
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

template <class Scalar>
struct WeightedAverage {
    const float* weights;
    Scalar reciprocal;
    explicit WeightedAverage(const Reduction& of)
        : weights(of.weights),
          reciprocal(static_cast<Scalar>(of.reciprocal != 0 ? of.reciprocal
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

// ---- the loop ----

/// `Inputs` 0: the number is in the reduction. The values of the reduction are copied, because for the compiler a store
/// through an output could change them.
template <class Format, class Combine, int Inputs>
class Kernel {
  public:
    Kernel(const Reduction& reduction, const Combine& combine)
        : combine_(combine),
          inputs_(reduction.inputs),
          outputs_(reduction.outputs),
          input_count_(Inputs > 0 ? Inputs : reduction.input_count),
          output_count_(reduction.output_count),
          size_(reduction.count * sizeof(typename Format::Element)) {}

    void run() const {
        std::size_t at = 0;
        for (; size_ - at >= ahead_bytes + unrolled * step; at += unrolled * step) {
            fetch(at + ahead_bytes);
            whole_vectors(at);
        }
        for (; size_ - at >= unrolled * step; at += unrolled * step) whole_vectors(at);
        for (; at < size_; at += step) part_of_vector(at, size_ - at < step ? size_ - at : step);
    }

  private:
    using Raw = typename Format::Raw;
    using Sum = typename Format::Sum;
    typedef Raw Unaligned __attribute__((aligned(1), may_alias));
    static constexpr std::size_t step = sizeof(Raw);
    static constexpr std::size_t unrolled = sizeof(Sum) > sizeof(Raw) ? 2 : 4;

    /// The processor prefetches only as far as its window of instructions reaches, and arithmetic fills that window:
    /// 16-bit types need ten times as many instructions per cache line as f32. Measured on 25 MiB of two ranks, in the
    /// other's cache: with this prefetch f32 takes 0.93 of the time, bf16 0.83; 512 to 2,048 bytes are alike. Nothing
    /// beyond the end is fetched, because another rank owns it.
    static constexpr std::size_t ahead_bytes = 1024;
    static constexpr std::size_t line_bytes = 64;

    MUSTER_INLINE void fetch(std::size_t at) const {
#pragma GCC unroll 4
        for (int i = 0; i < input_count_; ++i) {
#pragma GCC unroll 4
            for (std::size_t line = 0; line < unrolled * step; line += line_bytes) {
                __builtin_prefetch(input(i) + at + line);
            }
        }
    }

    MUSTER_INLINE const char* input(int i) const {
        return static_cast<const char*>(inputs_[i]);
    }
    MUSTER_INLINE char* output(int i) const {
        return static_cast<char*>(outputs_[i]);
    }

    MUSTER_INLINE void whole_vectors(std::size_t at) const {
        Sum sums[unrolled];
        const auto loaded = [](const char* from) { return Format::decode(*reinterpret_cast<const Unaligned*>(from)); };
#pragma GCC unroll 4
        for (std::size_t b = 0; b < unrolled; ++b) sums[b] = combine_.first(loaded(input(0) + at + b * step));
#pragma GCC unroll 4
        for (int i = 1; i < input_count_; ++i) {
            const char* from = input(i) + at;
#pragma GCC unroll 4
            for (std::size_t b = 0; b < unrolled; ++b) sums[b] = combine_.next(sums[b], loaded(from + b * step), i);
        }
#pragma GCC unroll 4
        for (std::size_t b = 0; b < unrolled; ++b) sums[b] = combine_.last(sums[b]);
        if (has_nan(sums, unrolled)) [[unlikely]] {
#pragma GCC unroll 4
            for (std::size_t b = 0; b < unrolled; ++b) sums[b] = with_one_nan(sums[b]);
        }
        Raw results[unrolled];
#pragma GCC unroll 4
        for (std::size_t b = 0; b < unrolled; ++b) results[b] = Format::encode(sums[b]);
        for (int o = 0; o < output_count_; ++o) {
            char* to = output(o) + at;
#pragma GCC unroll 4
            for (std::size_t b = 0; b < unrolled; ++b) *reinterpret_cast<Unaligned*>(to + b * step) = results[b];
        }
    }

    void part_of_vector(std::size_t at, std::size_t part) const {
        const auto loaded = [part](const char* from) {
            Raw raw{};
            __builtin_memcpy(&raw, from, part);
            return Format::decode(raw);
        };
        Sum sum = combine_.first(loaded(input(0) + at));
        for (int i = 1; i < input_count_; ++i) sum = combine_.next(sum, loaded(input(i) + at), i);
        const Raw result = Format::encode(with_one_nan(combine_.last(sum)));
        for (int o = 0; o < output_count_; ++o) __builtin_memcpy(output(o) + at, &result, part);
    }

    const Combine combine_;
    const void* const* const inputs_;
    void* const* const outputs_;
    const int input_count_;
    const int output_count_;
    const std::size_t size_;
};

// ---- from a Reduction to its kernel ----

template <class Format, class Combine>
void reduce_any(const Reduction& reduction, const Combine& combine) {
    Kernel<Format, Combine, 0>(reduction, combine).run();
}

/// Sums of few inputs have their own kernels, whose pointers stay in registers.
template <class Format, class Combine>
void reduce_few(const Reduction& reduction, const Combine& combine) {
    switch (reduction.input_count) {
        case 2: return Kernel<Format, Combine, 2>(reduction, combine).run();
        case 3: return Kernel<Format, Combine, 3>(reduction, combine).run();
        case 4: return Kernel<Format, Combine, 4>(reduction, combine).run();
        default: return reduce_any<Format>(reduction, combine);
    }
}

template <class Format, class Scalar>
void reduce_floating(const Reduction& reduction) {
    switch (reduction.reduce) {
        case ReduceOp::sum: return reduce_few<Format>(reduction, AddAll{});
        case ReduceOp::min: return reduce_any<Format>(reduction, TakeLeast{});
        case ReduceOp::max: return reduce_any<Format>(reduction, TakeGreatest{});
        case ReduceOp::avg: break;
    }
    if (reduction.weights)
        reduce_any<Format>(reduction, WeightedAverage<Scalar>(reduction));
    else
        reduce_few<Format>(reduction, Average<Scalar>(reduction));
}

/// Sums use the unsigned type, which wraps around.
template <class Signed, class Unsigned>
void reduce_integers(const Reduction& reduction) {
    switch (reduction.reduce) {
        case ReduceOp::sum: return reduce_few<Integer<Unsigned>>(reduction, AddAll{});
        case ReduceOp::min: return reduce_any<Integer<Signed>>(reduction, TakeLeast{});
        case ReduceOp::max: return reduce_any<Integer<Signed>>(reduction, TakeGreatest{});
        case ReduceOp::avg: return;  // reduce() has refused it
    }
}

void reduce_here(const Reduction& reduction) {
    switch (reduction.type) {
        case DataType::f32: return reduce_floating<F32, float>(reduction);
        case DataType::f64: return reduce_floating<F64, double>(reduction);
        case DataType::f16: return reduce_floating<F16, float>(reduction);
        case DataType::bf16: return reduce_floating<Bf16, float>(reduction);
        case DataType::i32: return reduce_integers<std::int32_t, std::uint32_t>(reduction);
        case DataType::i64: return reduce_integers<std::int64_t, std::uint64_t>(reduction);
        case DataType::u8: return reduce_integers<std::uint8_t, std::uint8_t>(reduction);
    }
}

}  // namespace
