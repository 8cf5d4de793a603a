// The process environment as a value: tests pass their own.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace muster::launcher {

using Environment = std::map<std::string, std::string, std::less<>>;

/// The environment of this process. Nothing else in the launcher reads it.
Environment process_environment();

/// The variable's value. Nothing if it is not set; an empty value is a value.
std::optional<std::string_view> lookup(const Environment& environment, std::string_view name);

/// The variable's value, or "" if it is not set.
std::string_view value_or_empty(const Environment& environment, std::string_view name);
/// The same as a function, for parts below the launcher. `environment` must outlive it.
std::function<std::string(const char* name)> value_of(const Environment& environment);

}  // namespace muster::launcher
