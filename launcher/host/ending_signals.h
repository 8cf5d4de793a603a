// The signals that end this process, for what it does first when one comes.
#pragma once

#include <signal.h>

#include <vector>

namespace muster::launcher {

struct EndingSignal {
    int number;
    struct sigaction action;
};

/// Those that end this process now, by their default or by what a launcher says of them during its start: all that are
/// not ignored.
std::vector<EndingSignal> ending_signals();

}  // namespace muster::launcher
