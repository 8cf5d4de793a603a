// Maps the reason of an end to an exit code. Nothing else does. exit_code_table() has the meaning of each code: --help
// prints it, and a test compares it with the table in FROM_TORCHRUN.md.
#pragma once

#include <span>
#include <string_view>

#include "agent/supervision/supervisor.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

namespace exit_codes {
inline constexpr int success = 0;
inline constexpr int usage = 2;
inline constexpr int internal = 70;
inline constexpr int retry = 75;
inline constexpr int saved_and_left = saved_and_left_code;
inline constexpr int never_again = never_again_code;
inline constexpr int configuration = 78;
inline constexpr int not_executable = 126;
inline constexpr int not_found = 127;
inline constexpr int signal_base = 128;
}  // namespace exit_codes

struct ExitCodeRow {
    std::string_view code;
    std::string_view meaning;
};

/// The codes in ascending order. A worker's own code passes through even if it equals one of these. The report tells
/// them apart.
std::span<const ExitCodeRow> exit_code_table();

/// The exit code of a job's end. `unsaved` names a step that was not written to disk; success then becomes `internal`.
/// --exit-code=torchrun: 0 stays 0, every other code becomes 1.
int exit_code(const agent::Ending& ending, ExitCodeStyle style, std::string_view unsaved = {});

/// The exit code if no agent ran. `code` is one of exit_codes. --exit-code=torchrun: 0 and 2 stay, every other code
/// becomes 1.
int exit_code(int code, ExitCodeStyle style);

}  // namespace muster::launcher
