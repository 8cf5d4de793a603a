// Arithmetic on gradients in host memory. The results have the same bits on every processor.
#pragma once

#include "muster/operation.h"

namespace muster::runtime {

void set_zero(const Buffer& buffer);

/// True if any element is a NaN or infinite.
bool has_non_finite(const ConstBuffer& buffer);

/// The sum is in f64, in a fixed order.
double sum_of_squares(const ConstBuffer& buffer);

/// Multiplies all elements by `factor`; 16-bit elements in f32, rounded once.
void scale(const Buffer& buffer, double factor);

/// Converts elements of one floating type to another, f32 from or to f16 and bf16: rounds to nearest even, and overflow
/// becomes infinity. Both buffers have `from.count` elements and do not overlap.
void convert(const ConstBuffer& from, const Buffer& to);

}  // namespace muster::runtime
