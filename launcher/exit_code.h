// The only place that flattens the reason of an end into a number. The README's table of exit codes is this one.
//
//   0     every worker of the last round exited 0
//   2     usage: an option or variable is wrong
//   75    nothing is wrong with the job, try again: no rendezvous (time-out, daemon lost), or a node was lost and too
//   few
//         were left
//   76    saved and left: this node was asked to leave and did, or a worker said so (its own code, passed through)
//   77    crash loop, do not requeue (its own code, passed through)
//   78    configuration: the agents of the job disagree, or the job id is taken
//   126   the program is there but cannot be executed
//   127   the program or its interpreter is not there
//   128+n muster was stopped by signal n
//   else  the root cause's: the exit code of the worker that failed first, or 128+n if signal n ended it
//   70    muster itself broke (a bug, or the operating system refused what it needs)
//
// A worker's own code passes through even where it equals one of these; the report says whose it is.
// --exit-code=torchrun: 0 stays 0, 2 stays 2, everything else is 1.
#pragma once

#include "agent/core/supervisor.h"
#include "launcher/launch_config.h"

namespace muster::launcher {

namespace exit_codes {
inline constexpr int success = 0;
inline constexpr int usage = 2;
inline constexpr int internal = 70;
inline constexpr int retry = 75;
inline constexpr int saved_and_left = 76;
inline constexpr int configuration = 78;
inline constexpr int not_executable = 126;
inline constexpr int not_found = 127;
inline constexpr int signal_base = 128;
}  // namespace exit_codes

int exit_code(const agent::Ending& ending, ExitCodeStyle style);

/// For ends that no agent had: `code` is one of exit_codes.
int exit_code(int code, ExitCodeStyle style);

}  // namespace muster::launcher
