// The name of an enumerator as the source has it: "timed_out". Reports, JSON and messages show these names, so a
// renamed enumerator changes them.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace muster {

/// "muster::Errc::io", or "(muster::Errc)42" if no enumerator has the value.
template <auto value>
constexpr std::string_view spelled() {
    std::string_view function = __PRETTY_FUNCTION__;
    function.remove_prefix(function.find("value = ") + 8);
    return function.substr(0, function.find_first_of(";]"));
}

template <class Enum>
inline constexpr auto spelled_values = []<std::size_t... value>(std::index_sequence<value...>) {
    return std::array{spelled<static_cast<Enum>(value)>()...};
}
(std::make_index_sequence<64>());

/// `otherwise` if no enumerator has the value, or if the value is 64 or more.
template <class Enum>
constexpr std::string_view enumerator_name(Enum value, std::string_view otherwise = "unknown") {
    const auto at = static_cast<std::size_t>(value);
    const auto text = at < spelled_values<Enum>.size() ? spelled_values<Enum>[at] : "(";
    return text.starts_with('(') ? otherwise : text.substr(text.rfind(':') + 1);
}

}  // namespace muster
