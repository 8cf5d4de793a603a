// The histogram of step times, which a worker counts, its agent passes on and the daemon exports.
#pragma once

#include <array>
#include <cstddef>

#include "rendezvous/base/time.h"

namespace muster {

/// Upper bounds. A step is counted in the first bucket whose bound is not exceeded, else in one beyond the last.
inline constexpr std::array<Duration, 10> step_time_bounds{1ms, 3ms, 10ms, 30ms, 100ms, 300ms, 1s, 3s, 10s, 30s};
inline constexpr std::size_t step_time_bucket_count = step_time_bounds.size() + 1;

}  // namespace muster
