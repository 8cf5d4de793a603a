// Reductions one element at a time, in rank order, as the public header promises them: what the kernels must equal.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
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

/// `weights` empty: all 1.
template <class T>
T reduce_one(const std::vector<T>& values, ReduceOp reduce, const std::vector<float>& weights) {
    const auto weight = [&](std::size_t rank) { return weights.empty() ? T{1} : static_cast<T>(weights[rank]); };
    T result = values[0];
    if (reduce == ReduceOp::avg) result = static_cast<T>(result * weight(0));
    T weight_sum = weight(0);
    for (std::size_t rank = 1; rank < values.size(); ++rank) {
        const T value = values[rank];
        weight_sum = static_cast<T>(weight_sum + weight(rank));
        switch (reduce) {
            case ReduceOp::sum: result = static_cast<T>(result + value); break;
            case ReduceOp::avg: result = static_cast<T>(result + value * weight(rank)); break;
            case ReduceOp::min: result = value < result || value != value ? value : result; break;
            case ReduceOp::max: result = value > result || value != value ? value : result; break;
        }
    }
    if (reduce == ReduceOp::avg) result = static_cast<T>(result * (T{1} / weight_sum));
    return result != result ? std::numeric_limits<T>::quiet_NaN() : result;
}

template <class Stored, class Work, class Widen, class Narrow>
Bytes reduce_all(const std::vector<Bytes>& inputs, ReduceOp reduce, const std::vector<float>& weights, Widen widen,
                 Narrow narrow) {
    Bytes result(inputs[0].size());
    std::vector<Work> values(inputs.size());
    for (std::size_t i = 0; i < result.size() / sizeof(Stored); ++i) {
        for (std::size_t rank = 0; rank < inputs.size(); ++rank) values[rank] = widen(read<Stored>(inputs[rank], i));
        write(result, i, static_cast<Stored>(narrow(reduce_one(values, reduce, weights))));
    }
    return result;
}

/// Sums wrap: they run in the unsigned type.
template <class Signed, class Unsigned>
Bytes reduce_integers(const std::vector<Bytes>& inputs, ReduceOp reduce) {
    const auto same = [](auto value) { return value; };
    if (reduce == ReduceOp::sum) return reduce_all<Unsigned, Unsigned>(inputs, reduce, {}, same, same);
    return reduce_all<Signed, Signed>(inputs, reduce, {}, same, same);
}

inline Bytes reference(DataType type, ReduceOp reduce, const std::vector<Bytes>& inputs,
                       const std::vector<float>& weights = {}) {
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
        case DataType::i32: return reduce_integers<std::int32_t, std::uint32_t>(inputs, reduce);
        case DataType::i64: return reduce_integers<std::int64_t, std::uint64_t>(inputs, reduce);
        case DataType::u8: return reduce_integers<std::uint8_t, std::uint8_t>(inputs, reduce);
    }
    return {};
}

}  // namespace muster::test
