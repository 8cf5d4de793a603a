// What muster does beside launching: `muster NAME ...`. --help lists them, and the manual pages and completions are
// made from what each says for --help (wiring.cpp runs them).
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
