// Starts a thread. All threads of the project are started here.
#pragma once

#include <functional>
#include <thread>

#include "rendezvous/base/error.h"

namespace muster {

/// Runs `work` on a new thread on which every signal is blocked: a signal belongs to the loop that waits for it, and a
/// thread takes over the mask of the one that starts it. `name` (15 letters at most) is what ps and gdb show. An error
/// (io) when the system has no thread to give: "start thread muster-output: Resource temporarily unavailable; ...".
Result<std::thread> start_thread(const char* name, std::function<void()> work);

}  // namespace muster
