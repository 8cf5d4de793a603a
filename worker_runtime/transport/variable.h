// A variable of the environment.
#pragma once

#include <stdlib.h>

#include <optional>
#include <string>

namespace muster::runtime {

inline std::optional<std::string> variable(const char* name) {
    const char* const value = ::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace muster::runtime
