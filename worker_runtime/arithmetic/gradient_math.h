// Arithmetic on gradients in host memory. The results have the same bits on every processor.
#pragma once

#include "muster/operation.h"

namespace muster::runtime {

void set_zero(const Buffer& buffer);

/// Is any element a NaN or infinite?
bool has_non_finite(const ConstBuffer& buffer);

/// In f64, in a fixed order.
double sum_of_squares(const ConstBuffer& buffer);

/// 16-bit elements are multiplied in f32 and rounded once.
void scale(const Buffer& buffer, double factor);

/// Elements of one floating type as those of another: to nearest even, overflow to infinity. f32 to and from f16 and
/// bf16. Both have `from.count` elements and do not overlap.
void convert(const ConstBuffer& from, const Buffer& to);

}  // namespace muster::runtime
