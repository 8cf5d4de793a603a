// What a program is made of, for --version: the first thing that is asked for when somebody else's build misbehaves.
#pragma once

#include <string>
#include <string_view>

namespace muster {

/// "`program` 0.1.0" on the first line; then, indented, the commit, the compiler, the versions of libraries that it was
/// built with, and its optional parts. Ends with '\n'. Equal sources and tools give equal text: a date is in it only
/// where SOURCE_DATE_EPOCH gave one at the build.
std::string build_facts(std::string_view program);

}  // namespace muster
