// muster key: the secret of this user's jobs, and the keys of single jobs.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// `arguments` are the words after "key". Without any: makes ~/.muster/key if no secret is set yet, and prints where
/// the secret comes from. "show": prints the secret alone, for a pipe. "set": reads it from stdin into ~/.muster/key.
/// "--job NAME": prints the key of one job. Exit codes: 0, 1 no secret or unusable, 2 usage.
int run_key(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
