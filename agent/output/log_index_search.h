// Finds a place in the index of a long log file without reading all of it.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/output/log_index.h"

namespace muster::agent {

/// Where to begin to read an index.
struct IndexPlace {
    std::uint64_t position = 0;       ///< Of the first byte of a line.
    std::optional<LogOwner> owner{};  ///< Of what was written before. Nothing: no line before names one.
};

/// The place of the last mark that is older than `time_ns`, by bisection: it reads about 100 KiB, however long the
/// index is. The begin of the index if no mark is older. Of a host whose clock was set back, marks may be passed over
/// that are not older.
IndexPlace find_mark_before(int index, std::int64_t time_ns);

/// The last mark with an owner whose line begins at `end` or before.
std::optional<LogMark> last_owner_mark(int index, std::uint64_t end);

}  // namespace muster::agent
