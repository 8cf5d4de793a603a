// The text of --version: version, commit, compiler, libraries and optional parts.
#pragma once

#include <string>
#include <string_view>

namespace muster {

/// "`program` 0.1.0" on the first line; then, indented, the commit, the compiler, the versions of libraries that it was
/// built with, and its optional parts. Ends with '\n'. Equal sources and tools give equal text: a date is in it only
/// where SOURCE_DATE_EPOCH gave one at the build.
std::string build_facts(std::string_view program);

}  // namespace muster
