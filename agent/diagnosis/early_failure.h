// Detects errors that a restart would repeat: a missing module, a script that does not parse, an unknown option of the
// program. The daemon ends the job at the first one, because a restart would only waste the allocation.
#pragma once

#include <string_view>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/failure.h"

namespace muster::agent {

/// A program that is older than this when it fails has begun to work, whether or not it told so (most scripts tell
/// nothing of their steps). Long enough for Python to import its libraries on many nodes from one slow disk.
inline constexpr Duration start_up_max = 5min;

/// The end's own words say that the same program with the same arguments will fail in the same way:
///
///   not started: no such file, no permission, not executable
///   exit 1, the last exception being an ImportError, ModuleNotFoundError, SyntaxError, IndentationError or TabError;
///           or "python3: No module named x" (-m)
///   exit 2  with a line "usage: ..." or "...: error: ..." of an argument parser, or Python's "can't open file"
///   exit 127 with the loader's "error while loading shared libraries"
///
/// Anything else may be healed by a restart: also what looks like a missing GPU, a node's full disk or a file that is
/// not there, because a node's trouble shows itself in these ways too. `message` is the error file's and is asked
/// first.
bool repeats_itself(const WorkerEnd& end, std::string_view message, std::string_view stderr_tail);

/// The end's own words are of our runtime: the newest checkpoint was not saved because the disk, or a quota of it, is
/// full. All ranks share that disk, so a restart goes on from the same step and meets the same disk. At any step.
bool is_full_of_checkpoints(const WorkerEnd& end, std::string_view message, std::string_view stderr_tail);

}  // namespace muster::agent
