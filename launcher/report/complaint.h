// What the commands beside the launcher (muster drain, fault, flight, checkpoint, config) say: their answer to stdout,
// and to stderr why there is none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/exit_code.h"

namespace muster::launcher {

/// "muster drain: which node?" to stderr, and the code back, for the caller to return. Without a command it is
/// muster's.
int complain(std::string_view command, int code, std::string_view line);

/// To stdout, behind what was written there before, and the code back; where stdout does not take all of it, a
/// complaint and `internal`: who reads a cut-off answer must not take it for the whole.
int answer(std::string_view command, std::string_view text, int code = exit_codes::success);

/// --help or -h, wherever among a command's words.
bool asks_for_help(const std::vector<std::string>& words);

}  // namespace muster::launcher
