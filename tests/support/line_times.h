// Lines of muster's own begin with the time where no terminal shows them (rendezvous/base/log.h): tests compare what
// follows it, and not what a busy host alone lets a launcher say.
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

/// `text` without the line of a launcher that got no CPU for more than half a lease. Where a test counts lines, it
/// switches the preflight off as well: of a busy host its looks may say that they took too long.
inline std::string without_standstills(const std::string& text) {
    static const std::regex standstill("[^\n]*muster: this launcher stood still for [^\n]*\n");
    return std::regex_replace(text, standstill, "");
}

}  // namespace muster::test
