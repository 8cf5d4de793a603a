// A job's events, as the daemon has them: for muster status JOB --events and --plot.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/commands/status_source.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

/// Asks the daemon for a page. Errors are sentences without the endpoint.
using GetPage = std::function<Result<std::string>(const std::string& target)>;

/// All that are kept, one in a line, the oldest first. Errors are those of `get`.
Result<std::string> job_events(const std::string& job, const GetPage& get);
/// The same of this daemon, which has 5 s for each page.
Result<std::string> job_events(const std::string& job, const StatusSource& source);

/// Those of one node, by is_of_nodes.
std::string events_of_node(std::string_view lines, const std::string& node);
/// The lines as people read them: the time and the sentence.
std::string events_text(std::string_view lines);

}  // namespace muster::launcher
