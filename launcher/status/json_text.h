#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace muster::launcher {

/// Of a page of a daemon, which may be of another version: empty where there is no such text.
inline std::string json_text(const nlohmann::json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace muster::launcher
