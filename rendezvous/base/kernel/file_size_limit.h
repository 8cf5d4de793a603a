// RLIMIT_FSIZE (ulimit -f): the largest file that this process may write.
#pragma once

#include <string>

namespace muster {

/// From now on a write beyond the limit fails with EFBIG, as one to a full disk fails with ENOSPC. Without this call it
/// ends the process by SIGXFSZ. Call it first in main.
void survive_file_size_limit();

/// The system's text of an errno. That of EFBIG names the limit: "File too large: this process may write files of at
/// most 4096 bytes; raise ulimit -f (RLIMIT_FSIZE)".
std::string errno_text(int number);

}  // namespace muster
