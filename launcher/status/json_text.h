#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace muster::launcher {

/// Of a page of a daemon, which may be of another version: empty where there is no such text.
inline std::string json_text(const nlohmann::json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The same of a whole number, `otherwise` in place of empty.
inline std::int64_t json_number(const nlohmann::json& object, const char* name, std::int64_t otherwise = -1) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

}  // namespace muster::launcher
