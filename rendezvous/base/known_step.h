// A step that a program or an agent reports, which may be any number.
#pragma once

#include <cstdint>

namespace muster {

/// Beyond it a step is no step. Sums and differences of steps do not overflow.
inline constexpr std::int64_t step_max = std::int64_t{1} << 53;

/// -1: none.
constexpr std::int64_t known_step(std::int64_t step) {
    return step >= 0 && step <= step_max ? step : -1;
}

}  // namespace muster
