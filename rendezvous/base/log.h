// The log on stderr, one line per event, and notices to the user. Drivers log; cores return a `why` instead.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster {

enum class LogLevel { debug, info, warning, error };

/// Lines below `level` are dropped from now on. The default is warning, so that a successful run prints nothing.
void set_log_level(LogLevel level);

/// Accepts debug, info, warning, error in any case (also Python's WARN and CRITICAL); false for anything else.
bool parse_log_level(std::string_view text, LogLevel& level);

/// Words before every line after the time, e.g. "muster[gpu07]".
void set_log_name(std::string_view name);

/// Writes one line. Thread-safe.
void log_line(LogLevel level, std::string_view line);

/// The time of a line of our own, and a blank: "2026-11-24T18:04:09.123+01:00 " (ISO 8601, local time with its offset).
/// Empty where `fd` is a terminal, which somebody watches, or the journal, which has its own time.
std::string line_time(int fd);

/// Whole lines whatever the level, in order with those of the log, each behind its line_time(). What a terminal would
/// not print is escaped (printable.h). Thread-safe.
void print_notice(std::string_view text);

/// Until this call, each line is written at once, and a stderr that is not read (a full pipe, a stopped terminal)
/// blocks the caller. Afterwards a thread writes: callers never wait, lines beyond a buffer of 1 MiB are dropped, and
/// "... N lines skipped" replaces them. Call it once, when no more fork without exec follows.
void write_log_on_thread();

/// True when all lines so far have been written (or dropped) before `limit`. For the end of a process.
bool flush_log(Duration limit);

[[nodiscard]] bool log_enabled(LogLevel level);

template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
    if (log_enabled(level)) log_line(level, cat(parts...));
}

}  // namespace muster
