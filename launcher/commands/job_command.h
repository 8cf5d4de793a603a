// Sends a command to a running job: to one of its agents on this host over that agent's Unix socket, or to its daemon
// with the job's secret. muster drain and muster fault use it.
#pragma once

#include <string>
#include <string_view>

#include "launcher/config/environment.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::launcher {

/// The job of a command, and the route to it.
struct JobAddress {
    std::string job;       ///< --job. Empty: the only job on this host.
    std::string endpoint;  ///< --rdzv-endpoint, one or several, comma-separated. Empty: an agent on this host.
};

/// Sends the command and prints the answer to stdout, or the error as "muster VERB: ..." to stderr. Exit codes: 0 done,
/// 1 not done, 2 usage. Timeouts: 12 s for each agent of the job on this host, 10 s for the daemon.
int give_command(std::string_view verb, const JobAddress& address, const native::Command& command,
                 const Environment& environment);

}  // namespace muster::launcher
