// The limit of open files of this process (RLIMIT_NOFILE), and how many connections of a port it allows.
#pragma once

#include <cstddef>

namespace muster {

/// Descriptors that are not connections: event loops, ports, the log, the guardian, and some room.
inline constexpr std::size_t descriptors_kept = 64;

/// Raises the soft limit of open files to the hard limit and returns it. For daemons and launchers; a launcher's
/// workers keep the user's limit (launcher/host/open_files.h). A limit without a bound is fs.nr_open.
std::size_t raise_open_files_limit();

/// The most connections of one port: the soft limit of open files less `descriptors_kept` (half of a limit that is
/// lower than twice that). At most 262,144 for each GiB of memory_budget_bytes(), because a connection costs memory
/// beside what its peer sends.
std::size_t connections_allowed();

}  // namespace muster
