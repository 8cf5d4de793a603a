// Replaces every NaN by the same one: processors and GPUs create NaNs with different bits, and differ in which of two
// NaNs an operation keeps.
#pragma once

#include <bit>
#include <cstdint>

namespace muster::runtime {

/// Returns `value`, or the NaN of reductions (arithmetic/reduce_kernels.h) for any NaN. For the host and for GPUs.
constexpr float with_one_nan(float value) {
    return value == value ? value : std::bit_cast<float>(std::uint32_t{0x7fc00000});
}

}  // namespace muster::runtime
