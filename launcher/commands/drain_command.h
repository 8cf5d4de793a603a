// muster drain NODE [--job ID] [--rdzv-endpoint HOST[:PORT],...]: drains one node of a running job, through an agent of
// the job on this host, or through its daemon with the job's secret.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// `arguments` are the words after "drain". Prints the result to stdout, or the error with the known jobs or nodes to
/// stderr. Exit codes: 0 done, 1 not done, 2 usage.
int run_drain(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
