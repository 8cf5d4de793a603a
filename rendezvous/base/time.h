// Time in the cores is an argument. Only the drivers read a clock, and decisions use only the monotonic one: wall time
// appears in reports and log lines only.
#pragma once

#include <chrono>
#include <string>

namespace muster {

using Duration = std::chrono::nanoseconds;
/// A point on this host's monotonic clock; comparable within one host only.
using Instant = std::chrono::steady_clock::time_point;

using namespace std::chrono_literals;

/// Never: the deadline of something that has none.
inline constexpr Instant no_deadline = Instant::max();

/// For people: "350 ms", "2.5 s", "12 min".
std::string describe(Duration duration);

}  // namespace muster
