// Elementwise kernels: conversions, averages over ranks, scaling.
#pragma once

#include "muster/data_type.h"
#include "worker_runtime/arithmetic/half_formats.h"
#include "worker_runtime/arithmetic/one_nan.h"
#include "worker_runtime/kernels/kernel.h"

namespace muster::kernels {

/// Converts an element of a 16-bit type or f32 to f32, and f32 to a 16-bit type.
MUSTER_HOST_AND_DEVICE inline float widened(std::uint16_t half, DataType type) {
    return type == DataType::bf16 ? runtime::f32_of_bf16(half) : runtime::f32_of_f16(half);
}
MUSTER_HOST_AND_DEVICE inline float widened(float value, DataType /*type*/) {
    return value;
}
MUSTER_HOST_AND_DEVICE inline std::uint16_t narrowed(float value, DataType type) {
    return type == DataType::bf16 ? runtime::bf16_of_f32(value) : runtime::f16_of_f32(value);
}

/// Names memory to the stand-in whose element type is known only at run time.
void visit_elements(auto& visit, const void*& data, std::uint64_t count, DataType type) {
    const auto as = [&]<class T>(T) {
        const T* typed = static_cast<const T*>(data);
        visit(typed, count);
        data = typed;
    };
    if (type == DataType::f32) {
        as(float{});
    } else if (type == DataType::f64) {
        as(double{});
    } else {
        as(std::uint16_t{});
    }
}

/// Converts f32 to a 16-bit type, rounding to nearest even. Writes zeroes after the `given` elements.
struct Narrow {
    using Form = Elementwise;
    const float* from;
    std::uint16_t* to;
    std::uint64_t given;
    std::uint64_t count;
    DataType type;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const {
        to[i] = i < given ? narrowed(from[i], type) : std::uint16_t{0};
    }
    void memory(auto&& visit) {
        visit(from, given);
        visit(to, count);
    }
};

struct Widen {
    using Form = Elementwise;
    const std::uint16_t* from;
    float* to;
    std::uint64_t count;
    DataType type;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const { to[i] = widened(from[i], type); }
    void memory(auto&& visit) {
        visit(from, count);
        visit(to, count);
    }
};

/// Writes a few numbers that travel as arguments of the launch, so no copy from host memory has to be waited for.
struct PutNumbers {
    using Form = Elementwise;
    static constexpr std::uint32_t most = 128;
    float values[most];
    float* to;
    std::uint64_t count;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const { to[i] = values[i]; }
    void memory(auto&& visit) { visit(to, count); }
};

/// The average over all ranks, as ReduceOp::avg defines it: sum(weight x) in f32 and in rank order, times
/// `reciprocal`, rounded once.
template <class T>
struct Average {
    using Form = Elementwise;
    const T* pieces;  ///< `world` pieces of `count` elements
    const float* weights;
    T* to;
    std::uint64_t count;
    std::uint32_t world;
    float reciprocal;
    DataType type;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const {
        if (world == 1) {  // copied unchanged, like every reduction over one rank
            to[i] = pieces[i];
            return;
        }
        float sum = widened(pieces[i], type) * weights[0];
        for (std::uint32_t rank = 1; rank < world; ++rank) {
            sum += widened(pieces[rank * count + i], type) * weights[rank];
        }
        sum = runtime::with_one_nan(sum * reciprocal);
        if constexpr (sizeof(T) == sizeof(float)) {
            to[i] = sum;
        } else {
            to[i] = narrowed(sum, type);
        }
    }
    void memory(auto&& visit) {
        visit(pieces, world * count);
        visit(weights, world);
        visit(to, count);
    }
};
using AverageHalves = Average<std::uint16_t>;
using AverageFloats = Average<float>;

/// Multiplies by a factor; 16-bit elements are multiplied in f32 and rounded once.
template <class T>
struct Scale {
    using Form = Elementwise;
    T* data;
    std::uint64_t count;
    T factor;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const { data[i] *= factor; }
    void memory(auto&& visit) { visit(data, count); }
};
using ScaleFloats = Scale<float>;
using ScaleDoubles = Scale<double>;

struct ScaleHalves {
    using Form = Elementwise;
    std::uint16_t* data;
    std::uint64_t count;
    float factor;
    DataType type;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const {
        data[i] = narrowed(widened(data[i], type) * factor, type);
    }
    void memory(auto&& visit) { visit(data, count); }
};

}  // namespace muster::kernels
