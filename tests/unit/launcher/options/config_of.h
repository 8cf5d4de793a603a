// A whole command line read, which the test expects to be right.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "launcher/options/options.h"
#include "tests/support/catch.h"

namespace muster::launcher {

/// With a script behind the words.
inline LaunchConfig config_of(std::vector<std::string> words, const Environment& environment = {}) {
    words.push_back("train.py");
    const auto parsed = parse_options(words, environment);
    if (const auto* error = std::get_if<UsageError>(&parsed)) FAIL(error->line);
    return std::get<Launch>(parsed).config;
}

}  // namespace muster::launcher
