// A command to a running job: through an agent of it on this host, over that agent's own Unix socket, or through its
// daemon with the job's secret. muster drain and muster fault share it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::launcher {

/// Which job, and by which way.
struct JobAddress {
    std::string job;  ///< --job; empty: the only one on this host
    std::string
        endpoint;  ///< --rdzv-endpoint, one or several with commas between; empty: through an agent on this host
};

/// The value of "--name VALUE" or "--name=VALUE" where words[at] is that option: `at` moves to the last word of it.
/// False where it is another word; an error where the value is missing.
Result<bool> take_value(const std::vector<std::string>& words, std::size_t& at, std::string_view name,
                        std::string& value);
/// The same for --job and --rdzv-endpoint.
Result<bool> take_address(const std::vector<std::string>& words, std::size_t& at, JobAddress& address);

/// Gives the command, prints the answer, or to stderr what is wrong, in the name of "muster <verb>", and returns the
/// exit code: 0 done, 1 not done, 2 usage. Waits 12 s at most for each agent of the job on this host, and 10 s for its
/// daemon.
int give_command(std::string_view verb, const JobAddress& address, const native::Command& command,
                 const Environment& environment);

}  // namespace muster::launcher
