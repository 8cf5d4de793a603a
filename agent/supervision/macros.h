// Python's string.Template, as torchrun uses it for workers' arguments and log prefixes.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace muster::agent {

using MacroValues = std::map<std::string, std::string, std::less<>>;

/// string.Template(text).safe_substitute(values): `$name` and `${name}` of a known name are replaced, `$$` becomes `$`,
/// everything else stays as it is. A name is an ASCII letter or '_' and then letters, digits and '_'; `$name` takes the
/// longest one, so "$local_rank_x" asks for "local_rank_x".
std::string substitute_macros(std::string_view text, const MacroValues& values);

}  // namespace muster::agent
