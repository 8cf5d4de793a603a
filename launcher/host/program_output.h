// What another program prints, for callers that have nothing else to do meanwhile.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::launcher {

/// Its stdout at its end or at `limit`; nothing if `is_stopping`, polled every 20 ms, returned true before. It is
/// killed and reaped then; one that hangs in the kernel does not end, and costs 1 s more. `input` is its stdin. As with
/// SideRuns, "note ..." says why it did not start.
std::optional<std::string> program_output(std::vector<std::string> words, Duration limit,
                                          const std::function<bool()>& is_stopping, std::string_view input = {});

}  // namespace muster::launcher
