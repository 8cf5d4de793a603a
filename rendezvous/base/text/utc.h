// Writes points in time for people and for files, in UTC.
#pragma once

#include <chrono>
#include <string>

namespace muster {

/// The time since 1970 in a format of strftime, at most 63 bytes: "%Y-%m-%d %H:%M:%S" gives "2026-11-21 18:04:09". Of a
/// time that no calendar has, as another host may send one: "an unknown time".
std::string utc_text(std::chrono::seconds since_1970, const char* format);

}  // namespace muster
