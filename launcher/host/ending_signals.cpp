#include "launcher/host/ending_signals.h"

namespace muster::launcher {

std::vector<EndingSignal> ending_signals() {
    std::vector<EndingSignal> found;
    for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) {
        struct sigaction now {};
        if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) found.push_back({number, now});
    }
    return found;
}

}  // namespace muster::launcher
