// The log of a process: one line an event, on stderr. Drivers log; cores return a `why` instead.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/text.h"

namespace muster {

enum class LogLevel { debug, info, warning, error };

/// Lines below `level` are dropped from now on. The default is warning, so that a successful run prints nothing.
void set_log_level(LogLevel level);

/// Accepts debug, info, warning, error in any case (also Python's WARN and CRITICAL); false for anything else.
bool parse_log_level(std::string_view text, LogLevel& level);

/// Words before every line after the time, e.g. "muster[gpu07]".
void set_log_name(std::string_view name);

/// Writes one line now (no buffering: a line must survive what comes after it). Thread-safe.
void log_line(LogLevel level, std::string_view line);

[[nodiscard]] bool log_enabled(LogLevel level);

template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
    if (log_enabled(level)) log_line(level, cat(parts...));
}

}  // namespace muster
