#include "launcher/config/environment.h"

#include <unistd.h>

namespace muster::launcher {

Environment process_environment() {
    Environment environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const auto equals = text.find('=');
        if (equals == std::string_view::npos) continue;
        environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return environment;
}

std::optional<std::string_view> lookup(const Environment& environment, std::string_view name) {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
}

std::string_view value_or_empty(const Environment& environment, std::string_view name) {
    return lookup(environment, name).value_or(std::string_view{});
}

std::function<std::string(const char* name)> value_of(const Environment& environment) {
    return [&environment](const char* name) { return std::string(value_or_empty(environment, name)); };
}

}  // namespace muster::launcher
