// Finds a place in the index of a long log file without reading all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "agent/output/log_index.h"

namespace muster::agent {

/// Where to begin to read an index: at a mark that names an owner and for which `is_before` holds, or at the begin. It
/// must hold for the first marks and for no later one. By bisection: it reads about 64 KiB for each halving, and leaves
/// about as much to be read, of an index that repeats its owners. Of a host whose clock was set back, marks may be
/// passed over that are not older.
std::uint64_t find_owner_before(int index, const std::function<bool(const LogMark&)>& is_before);

/// The last mark with an owner whose line begins at `end` or before.
std::optional<LogMark> last_owner_mark(int index, std::uint64_t end);

}  // namespace muster::agent
