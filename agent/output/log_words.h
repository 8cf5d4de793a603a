// The words of the lines in log_index.h and log_wire.h: a name and a number, each behind a space.
#pragma once

#include <algorithm>
#include <string_view>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

/// The number behind `name` and a space; `line` moves behind both and a further space.
template <std::integral Number>
bool take_number(std::string_view& line, std::string_view name, Number& number) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ') return false;
    line.remove_prefix(name.size() + 1);
    const auto end = std::min(line.find(' '), line.size());
    if (!parse_number(line.substr(0, end), number)) return false;
    line.remove_prefix(std::min(end + 1, line.size()));
    return true;
}

}  // namespace muster::agent
