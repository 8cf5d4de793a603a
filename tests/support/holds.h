// Words looked for in a text.
#pragma once

#include <string_view>

namespace muster::test {

inline bool holds(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace muster::test
