// `muster status [JOB]`: what the jobs of a daemon do, and what is wrong.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/commands/status_source.h"
#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

struct StatusOptions {
    std::string job;
    std::string endpoint = "127.0.0.1";
    std::optional<Duration> watch;  ///< The interval of --watch. Nothing: once.
    std::string plot;               ///< The file of --plot. Empty: none.
    bool once = false;
    bool json = false;
    bool insecure = false;  ///< In clear text where no key is accepted.
};

/// Reads the arguments of status, or of `muster top`, which has neither --watch nor --json nor --plot. The error is for
/// the user.
Result<StatusOptions> read_status_options(std::string_view verb, const std::vector<std::string>& words);

/// The daemon to ask. Nothing: an error was printed, and `code` is the exit code.
std::optional<StatusSource> find_status_source(std::string_view verb, const StatusOptions& options,
                                               const Environment& environment, int& code);

/// Exit codes: 0; 1 the daemon does not answer, or has no such job; 2 usage.
int run_status(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
