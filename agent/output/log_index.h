// When and by whom the parts of a log file were written. Pure.
//
// Beside ".../3/stdout.log" stands ".../3/.stdout.times", lines of text that are only ever appended:
//
//   round 7 rank 35 at 1764126000123456789 from 81920 to 81963 on gpu07
//   at 1764126000124001122 from 81963
//
// The first kind begins a round: its heading lies between the two offsets, which are equal where a worker of the round
// before goes on, and where the owner is named again, as it is after a thousand lines of the second kind: a reader that
// begins in the middle finds the owner. Times are nanoseconds of the host's clock, and the time of a byte is that of
// the last line before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/supervision/process_host.h"

namespace muster::agent {

/// Lines of the second kind, one after the other.
inline constexpr int unnamed_marks_max = 1000;
/// They have less, some 40 KB.
inline constexpr std::size_t owner_stride_bytes = 64 << 10;

/// A heading has this behind its time.
inline constexpr std::string_view log_heading = "--- round ";

struct LogMark {
    std::uint64_t offset = 0;  ///< From here on the bytes are as old as `time_ns`.
    std::uint64_t begin = 0;   ///< Of the workers' output: behind the heading, else `offset`.
    std::int64_t time_ns = 0;  ///< Since 1970.
    std::optional<LogOwner> owner;
    friend bool operator==(const LogMark&, const LogMark&) = default;
};

/// One line, with its end.
std::string to_line(const LogMark& mark);
/// Of a line without its end; nothing for one that is damaged or of a later version.
std::optional<LogMark> to_mark(std::string_view line);

/// Path of the index of the log file `path`.
std::string log_index_path(const std::string& path);

}  // namespace muster::agent
