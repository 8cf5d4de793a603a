// argv + MUSTER_* + PET_* -> LaunchConfig, or a message that names the option.
// Precedence, highest first: the command line, the file of --config, MUSTER_NAME, PET_NAME (torchrun's variables,
// ignored if PyTorch's Python API starts muster), the default. Only the effective value is checked. option_table.h
// lists the options, command_line.h describes the grammar, launch_rules.h the rules that span several options.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/options/job_file.h"

namespace muster::launcher {

/// A valid configuration. The caller logs the warnings.
struct Launch {
    LaunchConfig config;
    std::vector<std::string> warnings;
    /// If not empty, one of these addresses must be this host's own, or nobody serves the endpoint.
    std::vector<std::string> own_addresses = {};
    /// Options with which this node's part of another job of the same nodes meets at the same place: what the command
    /// line, the file, variables and the scheduler tell, without the number of nodes and the job's name.
    std::vector<std::string> meeting_options = {};
};

/// This process is a surplus task of a scheduler on this host. The caller prints the line to stderr and exits 0.
struct NothingToDo {
    std::string line;
};

/// The text of --help or --version. The caller prints it to stdout and exits 0.
struct ShowText {
    std::string text;
};

/// One line with its '\n': the option or variable, the given value and the accepted values. The caller prints it to
/// stderr and exits 2.
struct UsageError {
    std::string line;
};

using ParsedOptions = std::variant<Launch, ShowText, NothingToDo, UsageError>;

/// `words` is argv without argv[0]. `file` is the result of named_job_file. `hosts_file` is the text of /etc/hosts,
/// used only in pods of Kubernetes' indexed jobs. Pure.
ParsedOptions parse_options(const std::vector<std::string>& words, const Environment& environment,
                            const JobFile& file = {}, std::string_view hosts_file = {});

/// The variables that set defaults of options: MUSTER_NNODES, PET_NNODES and so on.
std::vector<std::string> option_variables();

}  // namespace muster::launcher
