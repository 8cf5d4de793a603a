// The process environment as a value, so that everything that reads it can be tested without setting any.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace muster::launcher {

using Environment = std::map<std::string, std::string, std::less<>>;

/// What this process was started with. The one place of the launcher that reads it.
Environment process_environment();

/// The variable's value; empty if it is not set at all (an empty value is a value).
std::optional<std::string_view> lookup(const Environment& environment, std::string_view name);

/// The variable's value, "" also if it is not set.
std::string_view value_or_empty(const Environment& environment, std::string_view name);

}  // namespace muster::launcher
