// The arithmetic of reductions: several ranks' elements become one, in rank order.
#pragma once

#include <cstddef>

#include "muster/data_type.h"
#include "muster/operation.h"

namespace muster::runtime {

/// What one call reduces. `inputs` are `input_count` >= 1 arrays in rank order, `outputs` any number of arrays that
/// each get the result; an output may be one of the inputs, else they do not overlap. No alignment is needed beyond the
/// element's (2-byte elements may lie at odd multiples of 2).
struct Reduction {
    DataType type = DataType::f32;
    ReduceOp reduce = ReduceOp::sum;
    const void* const* inputs = nullptr;
    int input_count = 0;
    void* const* outputs = nullptr;
    int output_count = 0;
    std::size_t count = 0;           ///< Number of elements.
    const float* weights = nullptr;  ///< Weights of the inputs in an average. Null: all 1.
    /// What an average multiplies its sum by; 0: 1 / (sum of weights). For an average in several calls, over some of
    /// the ranks each: 1 until the last call, whose factor is reciprocal_of() all ranks. The first input is then the
    /// sum so far, with weight 1.
    double reciprocal = 0;
};

/// 1 / (sum of `weights`), in the precision in which reduce() computes averages of this type.
double reciprocal_of(DataType type, const float* weights, int count);

/// Sums of f16, bf16 and f32 run in f32, of f64 in f64; an average multiplies the sum once by 1 / (sum of weights), in
/// the same precision; then one rounding to nearest even. The result does not depend on `count`, on alignment or on the
/// instruction set, bit for bit.
void reduce(const Reduction& reduction);

}  // namespace muster::runtime
