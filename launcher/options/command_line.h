// The grammar of torchrun's command line (Python's argparse), pure: argv in, options and the program's part out.
//
//   --name value, --name=value, --na value (an abbreviation that fits one option), --na_me for --na-me,
//   -t 3, -t3, -t=3, -mr3 (flags may be glued in front), and "--" before the program.
//   The first word that is neither an option nor an option's value is the program. All words after it belong to the
//   program, even if they look like options of muster.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/options/option_table.h"

namespace muster::launcher {

struct GivenOption {
    const OptionRow* row = nullptr;
    std::string value;  ///< "1" for a flag.
};

struct CommandLine {
    std::vector<GivenOption> options;  ///< In order. Of a repeated option the last one counts.
    bool has_program = false;
    std::string program;
    std::vector<std::string> arguments;
};

struct CommandLineError {
    std::string line;    ///< One line without the program's name.
    CommandLine before;  ///< The options before the error, so that an earlier --help still works.
};

/// `words` is argv without argv[0].
std::variant<CommandLine, CommandLineError> read_command_line(const std::vector<std::string>& words);

/// Finds the option of `name`: without dashes in front, complete or abbreviated, '-' and '_' equivalent. The string is
/// an error message.
std::variant<const OptionRow*, std::string> option_named(std::string_view name);

}  // namespace muster::launcher
