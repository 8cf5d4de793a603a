// Escapes foreign text (from workers and peers) for our own lines.
#pragma once

#include <string>
#include <string_view>

namespace muster {

[[nodiscard]] bool is_utf8(std::string_view text);

/// `text` as a terminal, a log file and JSON can take it: control characters (also U+0080 to U+009F) and bytes that are
/// not UTF-8 are written as \xNN. Tabs and newlines stay. Escaped twice it is the same.
std::string printable(std::string_view text);

}  // namespace muster
