// The arithmetic of reductions: combines the elements of several ranks, in rank order.
#pragma once

#include <cstddef>

#include "muster/data_type.h"
#include "muster/operation.h"

namespace muster::runtime {

/// The arguments of one reduction. `inputs` are `input_count` >= 1 arrays in rank order; each of the `outputs` gets
/// the result. An output may be one of the inputs, else arrays do not overlap. Only the element's alignment is
/// needed.
struct Reduction {
    DataType type = DataType::f32;
    ReduceOp reduce = ReduceOp::sum;
    const void* const* inputs = nullptr;
    int input_count = 0;
    void* const* outputs = nullptr;
    int output_count = 0;
    std::size_t count = 0;  ///< Number of elements.
    /// The inputs' weights in an average, and their factors in a premul_sum. Null: all 1.
    const double* weights = nullptr;
    /// The factor of an average's sum; 0: 1 / (sum of weights). For an average in several calls, each over some of the
    /// ranks: 1 until the last call, whose factor is reciprocal_of() all ranks. The first input is then the sum so far,
    /// with weight 1.
    double reciprocal = 0;
};

/// Returns 1 / (sum of `weights`), in the precision in which reduce() computes averages of this type.
double reciprocal_of(DataType type, const double* weights, int count);

/// Sums and products of f16, bf16 and f32 are in f32, of f64 in f64, those of integers wrap. An average multiplies the
/// sum once by 1 / (sum of weights), in the same precision. The result is rounded once, to nearest even. Its bits do
/// not depend on `count`, alignment or the instruction set.
void reduce(const Reduction& reduction);

}  // namespace muster::runtime
