// Parses configuration files: one "key = value" per line, comments begin with '#' or ';'. Pure; the caller interprets
// the keys.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster {

struct ConfigEntry {
    std::string key;    ///< Underscores are replaced by dashes.
    std::string value;  ///< Without surrounding blanks. May be empty.
    std::size_t line = 0;
};

struct ConfigError {
    std::size_t line = 0;
    std::string why;
};

/// Everything that could be read, and what could not.
struct ConfigText {
    std::vector<ConfigEntry> entries;
    std::vector<ConfigError> complaints;
};

/// A comment is a line of its own: '#' within a value is part of it. A key without '=' or without a name is complained
/// about, as is a control character.
ConfigText parse_config(std::string_view text);

/// The file's text. A pipe may stand in its place; its writer has 10 s. Errors: it cannot be read, has more than 1 MiB,
/// or does not end in time; for root (permission_denied) also: it is writable by group or others, or its owner is
/// neither root nor the real user. The path is in the message.
Result<std::string> read_config_file(const std::string& path);

/// yes, no, true, false, on, off, 1 or 0, in any case; nothing for other words.
std::optional<bool> config_flag(std::string_view value);

/// Words as a shell splits them: blanks between them, '...' as it is, "..." with \" and \\, and \ before any character.
/// Nothing is expanded. Nothing where a quote is not closed or a \ ends the text.
std::optional<std::vector<std::string>> split_words(std::string_view text);

}  // namespace muster
