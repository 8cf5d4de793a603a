// The grammar of torchrun's command line (Python's argparse), pure: argv in, options and the program's part out.
//
//   --name value, --name=value, --na value (an abbreviation that fits one option), --na_me for --na-me,
//   -t 3, -t3, -t=3, -mr3 (flags may be glued in front), and "--" before the program.
//   The first word that is no option and no option's value is the program; everything after it is the program's own,
//   word for word, even where it looks like one of our options.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/options/option_table.h"

namespace muster::launcher {

struct GivenOption {
    const OptionRow* row = nullptr;
    std::string value;  ///< "1" for a flag
};

struct CommandLine {
    std::vector<GivenOption> options;  ///< in order; of two alike the later one counts
    bool has_program = false;
    std::string program;
    std::vector<std::string> arguments;
};

struct CommandLineError {
    std::string line;    ///< one line without the program's name
    CommandLine before;  ///< what was read before the error: --help in front of it still helps
};

/// `words` is argv without argv[0].
std::variant<CommandLine, CommandLineError> read_command_line(const std::vector<std::string>& words);

/// The option that `name` (after the dashes, complete or abbreviated, '-' and '_' alike) means, or why there is none.
std::variant<const OptionRow*, std::string> option_named(std::string_view name);

}  // namespace muster::launcher
