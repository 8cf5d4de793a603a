// What a command line becomes beneath a scheduler, for the tests of each of them.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/options/options.h"
#include "tests/support/catch.h"

namespace muster::launcher {

/// Fails the test if it is none. `hosts`: what /etc/hosts says there.
inline Launch launch_of(const std::vector<std::string>& words, const Environment& environment,
                        std::string_view hosts = {}) {
    auto parsed = parse_options(words, environment, {}, hosts);
    if (const auto* error = std::get_if<UsageError>(&parsed)) FAIL(error->line);
    REQUIRE(std::holds_alternative<Launch>(parsed));
    return std::get<Launch>(std::move(parsed));
}

inline std::string complaint_of(const std::vector<std::string>& words, const Environment& environment,
                                std::string_view hosts = {}) {
    const auto parsed = parse_options(words, environment, {}, hosts);
    const auto* error = std::get_if<UsageError>(&parsed);
    return error != nullptr ? error->line : "no complaint";
}

inline bool says(const Launch& launch, std::string_view part) {
    for (const auto& line : launch.warnings)
        if (line.find(part) != std::string::npos) return true;
    return false;
}

}  // namespace muster::launcher
