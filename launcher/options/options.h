// argv + MUSTER_* + PET_* -> LaunchConfig, or a message that names the option.
//
// The command line beats the file of --config, which beats MUSTER_NAME, which beats PET_NAME (torchrun's own default
// variables), which beats the default. Only the value that wins is looked at. option_table.h lists the options,
// command_line.h describes the grammar, launch_rules.h the rules that span several options.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/options/job_file.h"

namespace muster::launcher {

/// Go on with this; `warnings` are for the log.
struct Launch {
    LaunchConfig config;
    std::vector<std::string> warnings;
    /// If not empty: one of these must be this host's own, else the nodes could not meet where they are to.
    std::vector<std::string> own_addresses = {};
};

/// One of several tasks of a scheduler on this host: print it to stderr, exit 0.
struct NothingToDo {
    std::string line;
};

/// --help or --version: print it to stdout, exit 0.
struct ShowText {
    std::string text;
};

/// Print it to stderr, exit 2. One line with its '\n': the option or variable, what was given, what is accepted.
struct UsageError {
    std::string line;
};

using ParsedOptions = std::variant<Launch, ShowText, NothingToDo, UsageError>;

/// `words` is argv without argv[0], `file` what named_job_file made of them, `hosts_file` the text of /etc/hosts, of
/// which a pod of Kubernetes' indexed jobs alone needs something. Looks at nothing but its arguments.
ParsedOptions parse_options(const std::vector<std::string>& words, const Environment& environment,
                            const JobFile& file = {}, std::string_view hosts_file = {});

}  // namespace muster::launcher
