// Finds out before anything starts that a checkpoint directory cannot be there.
#pragma once

#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// An error where something else than a folder stands at `path` or at a folder above it; it names that. Whatever else
/// there is to find (a folder that is missing or cannot be written) is for the workers, who may see another file
/// system. `option` names the option in the text; an empty `path` is fine. A file system that does not answer within
/// `limit` is a warning.
Result<void> check_checkpoint_place(const std::string& option, const std::string& path, Duration limit = 5s);

}  // namespace muster::launcher
