// The descriptors 0, 1 and 2 of this process.
#pragma once

namespace muster {

/// Opens /dev/null for each standard stream that is closed, so that none of our sockets or files gets its number and
/// is then printed into, or handed to a worker as its stdout. Call it before anything else is opened. False when
/// /dev/null cannot be opened.
bool open_missing_standard_streams();

}  // namespace muster
