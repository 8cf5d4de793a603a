// The words of muster logs.
#pragma once

#include <string>
#include <vector>

#include "launcher/commands/log_view.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

struct LogWish {
    LogRequest request;
    std::string job;  ///< Of a daemon. Empty: the request has folders.
    std::string endpoint = "127.0.0.1";
    bool insecure = false;  ///< In clear text where no key is accepted.
    bool stacks = false;    ///< Where the workers are, in place of lines.
    bool failed = false;    ///< Only workers that ended badly, by the events that the daemon has.
};

/// Errors are sentences for the user.
Result<LogWish> read_log_wish(const std::vector<std::string>& words);

}  // namespace muster::launcher
