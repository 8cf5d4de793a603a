// What the commands beside the launcher (muster drain, fault, flight, checkpoint) say when they cannot do what was
// asked.
#pragma once

#include <string_view>

namespace muster::launcher {

/// "muster drain: which node?" to stderr, and the code back, for the caller to return.
int complain(std::string_view command, int code, std::string_view line);

}  // namespace muster::launcher
