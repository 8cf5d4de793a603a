// The file of `--config`: any option of the command line as "key = value" lines, the long names without dashes, and
// `program` and `arguments`. A systemd unit names one (scripts/systemd). It overrides the environment; the command line
// overrides it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_table.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

struct FileValue {
    std::string source;  ///< "/etc/muster/train.conf:3: nnodes", as messages name it.
    std::string value;   ///< "1" or "0" for a flag.
};

struct JobFile {
    std::map<const OptionRow*, FileValue> values;
    std::optional<std::string> program;
    std::vector<std::string> arguments;   ///< All `arguments` lines, split as a shell does.
    std::vector<std::string> complaints;  ///< One line each, with path and line number. Empty: the file is valid.
};

/// Checks each line alone: known keys, no duplicates, accepted values. `path` is for messages. parse_options() reports
/// contradictions.
JobFile parse_job_file(std::string_view text, const std::string& path);

/// Reads the file that --config names in `words` (argv without argv[0]). Without --config, or for an invalid command
/// line, the result is empty. Fails if the file cannot be read.
Result<JobFile> named_job_file(const std::vector<std::string>& words);

}  // namespace muster::launcher
