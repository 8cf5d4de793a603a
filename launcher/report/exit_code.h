// The only place that flattens the reason of an end into a number. exit_code_table() says what each number means:
// --help prints it, and a test compares it with FROM_TORCHRUN.md's.
#pragma once

#include <span>
#include <string_view>

#include "agent/supervision/supervisor.h"
#include "launcher/config/launch_config.h"

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

/// In the order of the numbers. A worker's own code passes through even where it equals one of these; the report says
/// whose it is.
std::span<const ExitCodeRow> exit_code_table();

/// `unsaved`: which step did not come to the disk; success is then `internal`. --exit-code=torchrun: 0 stays 0,
/// everything else is 1.
int exit_code(const agent::Ending& ending, ExitCodeStyle style, std::string_view unsaved = {});

/// For ends that no agent had: `code` is one of exit_codes. --exit-code=torchrun: 0 and 2 stay, everything else is 1.
int exit_code(int code, ExitCodeStyle style);

}  // namespace muster::launcher
