// "Did you mean": the known word that is most like an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::launcher {

/// The nearest of `known` (the first of several); empty when `known` is. Never refuses a far one: the reader of an
/// error message loses nothing by seeing one name that exists.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace muster::launcher
