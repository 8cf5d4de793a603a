// The subcommands of muster: `muster NAME ...`. --help lists them. The manual pages and completions are generated from
// each command's own --help. wiring.cpp runs them.
#pragma once

#include <span>
#include <string_view>

namespace muster::launcher {

struct CommandRow {
    std::string_view name;
    std::string_view arguments;  ///< "DIR..."
    std::string_view help;
};

std::span<const CommandRow> command_table();

}  // namespace muster::launcher
