// Lines of muster's own begin with the time where no terminal shows them (rendezvous/base/log.h): tests compare what
// follows it.
#pragma once

#include <regex>
#include <string>

namespace muster::test {

/// "2026-11-24T18:04:09.123+01:00 ", as a regular expression.
inline const std::string line_time_pattern = R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d )";

/// `text` without the time that begins a line.
inline std::string without_times(const std::string& text) {
    static const std::regex time("(^|\n)" + line_time_pattern);
    return std::regex_replace(text, time, "$1");
}

}  // namespace muster::test
