// Checks a checkpoint directory before anything starts.
#pragma once

#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// Fails if `path` or one of its parents is not a directory; the error names it. A missing or unwritable directory is
/// left to the workers, which may see another file system. `option` is for the messages. An empty `path` is valid. Logs
/// a warning if the file system does not answer within `limit`.
Result<void> check_checkpoint_place(const std::string& option, const std::string& path, Duration limit = 5s);

}  // namespace muster::launcher
