// Reductions one element at a time, in rank order, as the public header promises them: what the kernels must equal.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "muster/data_type.h"
#include "muster/operation.h"
#include "tests/unit/worker_runtime/arithmetic/number_formats.h"

namespace muster::test {

using Bytes = std::vector<unsigned char>;

template <class T>
T read(const Bytes& bytes, std::size_t index) {
    T value;
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return value;
}
template <class T>
void write(Bytes& bytes, std::size_t index, T value) {
    std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

/// Integers of less than 32 bits are multiplied as unsigned: as int, which they become otherwise, they would overflow.
template <class T>
T product_of(T a, T b) {
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    else
        return a * b;
}

template <class T>
T bits_of(T a, T b, ReduceOp reduce) {
    if constexpr (std::is_integral_v<T>) {
        if (reduce == ReduceOp::band) return static_cast<T>(a & b);
        return static_cast<T>(reduce == ReduceOp::bor ? a | b : a ^ b);
    }
    return a;
}

/// Of one value and weight from each rank.
template <class T>
T reduce_one(std::span<const T> values, ReduceOp reduce, std::span<const T> weights) {
    T result = values[0];
    if (multiplies(reduce)) result = static_cast<T>(result * weights[0]);
    T weight_sum = weights[0];
    for (std::size_t rank = 1; rank < values.size(); ++rank) {
        const T value = values[rank], weight = weights[rank];
        weight_sum = static_cast<T>(weight_sum + weight);
        switch (reduce) {
            case ReduceOp::sum: result = static_cast<T>(result + value); break;
            case ReduceOp::avg:
            case ReduceOp::premul_sum: result = static_cast<T>(result + value * weight); break;
            case ReduceOp::min: result = value < result || value != value ? value : result; break;
            case ReduceOp::max: result = value > result || value != value ? value : result; break;
            case ReduceOp::product: result = product_of(result, value); break;
            case ReduceOp::band:
            case ReduceOp::bor:
            case ReduceOp::bxor: result = bits_of(result, value, reduce); break;
        }
    }
    if (reduce == ReduceOp::avg) result = static_cast<T>(result * (T{1} / weight_sum));
    return result != result ? std::numeric_limits<T>::quiet_NaN() : result;
}

/// `weights` empty: all 1.
template <class Stored, class Work, class Widen, class Narrow>
Bytes reduce_all(const std::vector<Bytes>& inputs, ReduceOp reduce, const std::vector<double>& weights, Widen widen,
                 Narrow narrow) {
    Bytes result(inputs[0].size());
    std::vector<Work> values(inputs.size()), factors(inputs.size(), Work{1});
    for (std::size_t rank = 0; rank < weights.size(); ++rank) factors[rank] = static_cast<Work>(weights[rank]);
    for (std::size_t i = 0; i < result.size() / sizeof(Stored); ++i) {
        for (std::size_t rank = 0; rank < inputs.size(); ++rank) values[rank] = widen(read<Stored>(inputs[rank], i));
        write(result, i, static_cast<Stored>(narrow(reduce_one<Work>(values, reduce, factors))));
    }
    return result;
}

/// Sums wrap: they run in the unsigned type.
template <class T>
Bytes reduce_integers(const std::vector<Bytes>& inputs, ReduceOp reduce) {
    using Unsigned = std::make_unsigned_t<T>;
    const auto same = [](auto value) { return value; };
    if (reduce == ReduceOp::sum) return reduce_all<Unsigned, Unsigned>(inputs, reduce, {}, same, same);
    return reduce_all<T, T>(inputs, reduce, {}, same, same);
}

inline Bytes reference(DataType type, ReduceOp reduce, const std::vector<Bytes>& inputs,
                       const std::vector<double>& weights = {}) {
    const auto same = [](auto value) { return value; };
    const auto sixteen = [&](const Format16& format) {
        return reduce_all<std::uint16_t, float>(
            inputs, reduce, weights, [&](std::uint16_t bits) { return format.decode(bits); },
            [&](float value) { return format.encode(value); });
    };
    switch (type) {
        case DataType::f32: return reduce_all<float, float>(inputs, reduce, weights, same, same);
        case DataType::f64: return reduce_all<double, double>(inputs, reduce, weights, same, same);
        case DataType::f16: return sixteen(binary16);
        case DataType::bf16: return sixteen(bfloat16);
        case DataType::i32: return reduce_integers<std::int32_t>(inputs, reduce);
        case DataType::i64: return reduce_integers<std::int64_t>(inputs, reduce);
        case DataType::u8: return reduce_integers<std::uint8_t>(inputs, reduce);
        case DataType::i8: return reduce_integers<std::int8_t>(inputs, reduce);
        case DataType::u16: return reduce_integers<std::uint16_t>(inputs, reduce);
        case DataType::i16: return reduce_integers<std::int16_t>(inputs, reduce);
        case DataType::u32: return reduce_integers<std::uint32_t>(inputs, reduce);
        case DataType::u64: return reduce_integers<std::uint64_t>(inputs, reduce);
    }
    return {};
}

inline constexpr DataType all_types[] = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16,
                                         DataType::i32, DataType::i64, DataType::u8,  DataType::i8,
                                         DataType::u16, DataType::i16, DataType::u32, DataType::u64};
inline constexpr ReduceOp all_reductions[] = {ReduceOp::sum, ReduceOp::avg,     ReduceOp::min,
                                              ReduceOp::max, ReduceOp::product, ReduceOp::band,
                                              ReduceOp::bor, ReduceOp::bxor,    ReduceOp::premul_sum};

/// Has elements of `type` this reduction?
constexpr bool has(DataType type, ReduceOp reduce) {
    return is_floating(type) ? !is_bitwise(reduce) : !multiplies(reduce);
}

}  // namespace muster::test
