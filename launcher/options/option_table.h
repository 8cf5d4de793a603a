// Every option of muster, one row each. Parsing, PET_* and MUSTER_* defaults, --help and the tests all read this table,
// so an option cannot exist in one of them and be missing in another.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "launcher/options/settings.h"

namespace muster::launcher {

enum class ValueKind { flag, value };

/// The headings of --help, in this order.
enum class OptionGroup { nodes, rendezvous, program, restarts, output, compatibility, about };

/// torchrun's options win over ours when an abbreviation fits both, so that no command line changes its meaning.
enum class Origin { torchrun, muster };

/// Puts the value into the settings, or says what is accepted. Flags get "1" or "0".
using Accept = std::optional<std::string> (*)(std::string_view value, Settings& settings);

struct OptionRow {
    std::string_view name;  ///< long name with dashes; underscores are the same
    char letter = 0;        ///< short form, 0: none
    ValueKind kind = ValueKind::value;
    OptionGroup group = OptionGroup::nodes;
    Origin origin = Origin::torchrun;
    bool from_environment = true;  ///< PET_NAME and MUSTER_NAME give a default (MUSTER_NAME alone for our own options)
    std::string_view metavar;      ///< "N", "HOST[:PORT]"; empty for flags
    std::string_view help;         ///< one or two sentences; the default is added by --help itself
    std::string_view fallback;     ///< the default as text for --help; empty: none to show
    Accept accept = nullptr;       ///< nullptr: --help and --version, which options.cpp itself carries out
};

std::span<const OptionRow> option_table();

/// The row of `name` (dashes, complete), or nullptr.
const OptionRow* find_option(std::string_view name);

std::string_view heading(OptionGroup group);

}  // namespace muster::launcher
