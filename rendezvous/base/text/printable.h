// Escapes foreign text (from workers and peers) for our own lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

[[nodiscard]] bool is_utf8(std::string_view text);

/// True when printable() leaves `text` as it is.
[[nodiscard]] bool is_printable(std::string_view text);

/// The same, and `text` has no tab and no newline.
[[nodiscard]] bool is_printable_line(std::string_view text);

/// `text` as a terminal, a log file and JSON can take it: control characters (also U+0080 to U+009F) and bytes that are
/// not UTF-8 are written as \xNN. Tabs and newlines stay. Escaped twice it is the same.
std::string printable(std::string_view text);

/// printable(), with tabs and newlines escaped too: what must not begin a line of its own.
std::string printable_line(std::string_view text);

/// The first or last bytes of valid UTF-8, at most `bytes_max`, without a part of a character.
std::string_view front_of(std::string_view text, std::size_t bytes_max);
std::string_view back_of(std::string_view text, std::size_t bytes_max);

}  // namespace muster
