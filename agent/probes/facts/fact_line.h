// Prints records that agent/doctor/look.h parses: "NAME\tFIELD=VALUE\tFIELD=VALUE".
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace muster::agent {

/// Tabs and newlines of values become blanks. Written at once, because a later record may hang.
void print_fact(std::string_view name, std::initializer_list<std::pair<std::string_view, std::string>> fields);

}  // namespace muster::agent
