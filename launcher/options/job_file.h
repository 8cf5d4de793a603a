// The file of `--config`: any option of the command line as "key = value" lines, the long names without dashes, and
// `program` and `arguments`. A systemd unit names one (scripts/systemd); the command line beats it, and it beats the
// environment.
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
    std::string source;  ///< "/etc/muster/train.conf:3: nnodes", as messages name it
    std::string value;   ///< "1" or "0" for a flag
};

struct JobFile {
    std::map<const OptionRow*, FileValue> values;
    std::optional<std::string> program;
    std::vector<std::string> arguments;   ///< of all lines `arguments`, split as a shell does
    std::vector<std::string> complaints;  ///< one line each, with the path and the number of the line; empty: all right
};

/// Looks at every line by itself: keys that there are, once each, and values that their options accept. `path` is for
/// messages. What contradicts something else is parse_options' to say.
JobFile parse_job_file(std::string_view text, const std::string& path);

/// The file that these words (argv without argv[0]) name, or an empty one if they name none, or are no command line.
/// Errors: it cannot be read.
Result<JobFile> named_job_file(const std::vector<std::string>& words);

}  // namespace muster::launcher
