// The table of all options of muster, one row each. Parsing, PET_* and MUSTER_* defaults, --help, manual pages and
// completions read this table. A new option is a row here and a field of LaunchConfig.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "launcher/options/settings.h"

namespace muster::launcher {

enum class ValueKind { flag, value };

/// The headings of --help, in the order of printing.
enum class OptionGroup { nodes, rendezvous, program, restarts, output, compatibility, about };

/// If an abbreviation fits an option of torchrun and one of muster, torchrun's is chosen: its command lines keep their
/// meaning.
enum class Origin { torchrun, muster };

/// Stores the value in the settings, or returns a description of accepted values. The value of a flag is "1" or "0".
using Accept = std::optional<std::string> (*)(std::string_view value, Settings& settings);

struct OptionRow {
    std::string_view name;  ///< Long name with dashes. Underscores are equivalent.
    char letter = 0;        ///< Short form. 0: none.
    ValueKind kind = ValueKind::value;
    OptionGroup group = OptionGroup::nodes;
    Origin origin = Origin::torchrun;
    bool from_environment = true;  ///< MUSTER_NAME sets a default, and PET_NAME where options.cpp reads it.
    std::string_view metavar;      ///< "N", "HOST[:PORT]". Empty for flags.
    std::string_view help;         ///< One or two sentences. --help appends the default.
    std::string_view fallback;     ///< The default as --help shows it. Empty: not shown.
    Accept accept = nullptr;       ///< nullptr for --help and --version, which options.cpp implements.
};

std::span<const OptionRow> option_table();

/// The row of `name` (dashes, complete), or nullptr.
const OptionRow* find_option(std::string_view name);

/// A subcommand: `muster NAME ...`. The manual pages and completions are generated from each one's own --help.
/// node/wiring.cpp runs them.
struct CommandRow {
    std::string_view name;
    std::string_view arguments;  ///< "DIR..."
    std::string_view help;
};

std::span<const CommandRow> command_table();

}  // namespace muster::launcher
