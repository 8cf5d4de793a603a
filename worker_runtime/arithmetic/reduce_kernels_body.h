// reduce() for one instruction set. The rules of reduce_formats_body.h apply here too. The including file defines
// `F16`, the format for its instructions, and any_nan(a, b) for vectors of f32 and of f64.
//
// A kernel reads memory once. For each block it loads the inputs in rank order, combines them in registers, and only
// then stores to all outputs. An output may therefore be an input.
#pragma once

#include <type_traits>

#include "worker_runtime/arithmetic/reduce_operators_body.h"

namespace {

using muster::DataType;

// ---- the loop ----

/// `Inputs` 0: the number is in the reduction. -1: the same for a rare reduction, whose code is smaller and not as
/// fast. The values of the reduction are copied, because for the compiler a store through an output could change them.
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
        if constexpr (!is_rare) {
            for (; size_ - at >= ahead_bytes + unrolled * step; at += unrolled * step) {
                fetch(at + ahead_bytes);
                whole_vectors(at);
            }
        }
        for (; size_ - at >= unrolled * step; at += unrolled * step) whole_vectors(at);
        for (; at < size_; at += step) part_of_vector(at, size_ - at < step ? size_ - at : step);
    }

  private:
    using Raw = typename Format::Raw;
    using Sum = typename Format::Sum;
    typedef Raw Unaligned __attribute__((aligned(1), may_alias));
    static constexpr std::size_t step = sizeof(Raw);
    static constexpr bool is_rare = Inputs < 0;
    static constexpr std::size_t unrolled = is_rare || sizeof(Sum) > sizeof(Raw) ? 2 : 4;

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

template <class Format, class Combine>
void reduce_rarely(const Reduction& reduction, const Combine& combine) {
    Kernel<Format, Combine, -1>(reduction, combine).run();
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
        case ReduceOp::sum: return reduce_few<Format>(reduction, Fold<ReduceOp::sum>{});
        case ReduceOp::min: return reduce_any<Format>(reduction, Fold<ReduceOp::min>{});
        case ReduceOp::max: return reduce_any<Format>(reduction, Fold<ReduceOp::max>{});
        case ReduceOp::product: return reduce_rarely<Format>(reduction, Fold<ReduceOp::product>{});
        case ReduceOp::avg:
        case ReduceOp::premul_sum: break;
        case ReduceOp::band:
        case ReduceOp::bor:
        case ReduceOp::bxor: return;  // reduce() has refused it
    }
    if (reduction.weights)
        reduce_any<Format>(reduction, WeightedAverage<Scalar>(reduction));
    else if (reduction.reduce == ReduceOp::premul_sum)
        reduce_few<Format>(reduction, Fold<ReduceOp::sum>{});
    else
        reduce_few<Format>(reduction, Average<Scalar>(reduction));
}

/// Of every integer type: as bytes, so that there is one kernel for all of them.
void reduce_bits(const Reduction& of, std::size_t element_bytes) {
    Reduction bytes = of;
    bytes.count *= element_bytes;
    if (of.reduce == ReduceOp::band) return reduce_rarely<Plain<std::uint8_t>>(bytes, Fold<ReduceOp::band>{});
    if (of.reduce == ReduceOp::bor) return reduce_rarely<Plain<std::uint8_t>>(bytes, Fold<ReduceOp::bor>{});
    reduce_rarely<Plain<std::uint8_t>>(bytes, Fold<ReduceOp::bxor>{});
}

/// Sums and products use the unsigned type of the same size, which wraps around.
template <class T>
void reduce_integers(const Reduction& reduction) {
    using Unsigned = std::make_unsigned_t<T>;
    switch (reduction.reduce) {
        case ReduceOp::sum:
            if constexpr (sizeof(T) == 2)
                return reduce_rarely<Plain<Unsigned>>(reduction, Fold<ReduceOp::sum>{});
            else
                return reduce_few<Plain<Unsigned>>(reduction, Fold<ReduceOp::sum>{});
        case ReduceOp::product: return reduce_rarely<Plain<Unsigned>>(reduction, Fold<ReduceOp::product>{});
        case ReduceOp::min: return reduce_rarely<Plain<T>>(reduction, Fold<ReduceOp::min>{});
        case ReduceOp::max: return reduce_rarely<Plain<T>>(reduction, Fold<ReduceOp::max>{});
        case ReduceOp::band:
        case ReduceOp::bor:
        case ReduceOp::bxor: return reduce_bits(reduction, sizeof(T));
        case ReduceOp::avg:
        case ReduceOp::premul_sum: return;  // reduce() has refused it
    }
}

void reduce_here(const Reduction& reduction) {
    switch (reduction.type) {
        case DataType::f32: return reduce_floating<Plain<float>, float>(reduction);
        case DataType::f64: return reduce_floating<Plain<double>, double>(reduction);
        case DataType::f16: return reduce_floating<F16, float>(reduction);
        case DataType::bf16: return reduce_floating<Bf16, float>(reduction);
        case DataType::i32: return reduce_integers<std::int32_t>(reduction);
        case DataType::i64: return reduce_integers<std::int64_t>(reduction);
        case DataType::u8: return reduce_integers<std::uint8_t>(reduction);
        case DataType::i8: return reduce_integers<std::int8_t>(reduction);
        case DataType::u16: return reduce_integers<std::uint16_t>(reduction);
        case DataType::i16: return reduce_integers<std::int16_t>(reduction);
        case DataType::u32: return reduce_integers<std::uint32_t>(reduction);
        case DataType::u64: return reduce_integers<std::uint64_t>(reduction);
    }
}

}  // namespace
