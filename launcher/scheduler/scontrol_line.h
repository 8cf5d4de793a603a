// One line of "scontrol -o show ...": NAME=VALUE words with blanks between. Pure.
#pragma once

#include <string_view>

namespace muster::launcher {

/// The value of `name`, up to the next blank; empty where the line has none. Of several lines the first counts.
std::string_view scontrol_field(std::string_view lines, std::string_view name);

}  // namespace muster::launcher
