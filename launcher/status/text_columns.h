// Text by the columns that a terminal needs for it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::launcher {

struct Character {
    std::size_t bytes = 1;
    std::size_t columns = 1;
};

/// The first character of valid UTF-8 that is not empty. East Asian wide characters and emoji take two columns,
/// combining marks none.
Character character_at(std::string_view text);
/// The columns of all of it.
std::size_t columns_of(std::string_view text);
/// The front of `text` that fits, with "..." where something is cut.
std::string cut_to(std::string_view text, std::size_t columns);
/// Exactly so wide: cut, or with blanks behind it.
std::string padded(std::string_view text, std::size_t columns);

}  // namespace muster::launcher
