// Replaces every NaN by the same one, because processors and GPUs make NaNs with different bits, and differ in which of
// two an operation keeps.
#pragma once

#include <bit>
#include <cstdint>

namespace muster::runtime {

/// Any NaN becomes the same one, as in reductions (arithmetic/reduce_kernels.h). For the host and for GPUs.
constexpr float with_one_nan(float value) {
    return value == value ? value : std::bit_cast<float>(std::uint32_t{0x7fc00000});
}

}  // namespace muster::runtime
