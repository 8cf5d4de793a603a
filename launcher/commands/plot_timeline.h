// muster status JOB --plot FILE.svg: draws a job's events.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/base/error.h"

namespace muster::launcher {

/// Asks the daemon for a page. Errors are sentences without the endpoint.
using GetPage = std::function<Result<std::string>(const std::string& target)>;

/// Writes the picture to `file`. `goodput`: the sentence of the status page. Errors are those of `get`, of an answer
/// that has no events, and of the file, which is whole or as it was before.
Result<void> plot_timeline(const std::string& job, const std::string& goodput, const std::string& file,
                           const GetPage& get);

}  // namespace muster::launcher
