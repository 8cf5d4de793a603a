// Whether another process would survive a signal.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster::agent {

/// Whether the process handles `signal`, by the SigCgt line of /proc/PID/status. False where that cannot be read.
bool handles_signal(std::int32_t pid, int signal);

/// The same for the text of such a file.
bool status_handles_signal(std::string_view status, int signal);

}  // namespace muster::agent
