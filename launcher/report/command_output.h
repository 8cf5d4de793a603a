// Output of the subcommands (muster drain, fault, flight, checkpoint, config): the answer on stdout, errors on stderr.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/exit_code.h"

namespace muster::launcher {

/// Prints "muster drain: LINE" to stderr, or "muster: LINE" without a command. Returns `code`.
int print_error(std::string_view command, int code, std::string_view line);

/// Prints `text` to stdout after earlier output and returns `code`. If the write fails, it complains and returns
/// `internal`, so that no caller takes a truncated answer for a complete one.
int answer(std::string_view command, std::string_view text, int code = exit_codes::success);

/// True if --help or -h is among a command's words.
bool asks_for_help(const std::vector<std::string>& words);

}  // namespace muster::launcher
