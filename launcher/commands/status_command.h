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
    std::string node;               ///< Only events of this host. Empty: of all.
    bool events = false;
    bool once = false;
    bool json = false;
    bool insecure = false;  ///< In clear text where no key is accepted.
};

/// Reads the arguments of status, or of `muster top`, which has only --once, --insecure and the endpoint. The error is
/// for the user.
Result<StatusOptions> read_status_options(std::string_view verb, std::vector<std::string> words);

/// The daemon to ask. Nothing: an error was printed, and `code` is the exit code.
std::optional<StatusSource> find_status_source(std::string_view verb, const std::string& endpoint, bool insecure,
                                               const Environment& environment, int& code);

/// The screen of `muster top`, with news each options.watch or second. The exit code: 128 and the signal that ended it;
/// 1 if the first page has no such job, without options.watch.
int show_top(const StatusOptions& options, const StatusSource& source);

/// Exit codes: 0; 1 the daemon does not answer, or has no such job; 2 usage.
int run_status(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
