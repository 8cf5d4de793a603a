// The report at the end of a job: short, with the same facts on every node. Pure.
//
//   muster: job bert failed: worker failed and no restart is left (3 of 3 used)
//     first failure: rank 5 (local rank 1) on gpu07, pid 4242: signal 9 (SIGKILL)
//     ...
// The first failure of all nodes is reported in full, the others as a count. Workers that muster stopped because of it
// are counted separately.
#pragma once

#include <string>

#include "agent/supervision/supervisor.h"

namespace muster::agent {

struct ReportContext {
    std::string job = "none";
    std::string host;  ///< This node's host. Its own failures are reported as "here".
    std::string program = "muster";
    std::size_t stderr_lines_max = 20;  ///< Number of printed lines of the first failure's stderr.
    std::string signal_reason = {};     ///< Why the scheduler sent its signal, if known.
    std::string unsaved = {};           ///< The step that was not written from memory to disk, and the newest safe one.
    bool job_is_named = true;           ///< False: its id is not printed, because it is "none" or random.
    std::string entry = "its program";  ///< The program that this node was to run.
    native::StandbysSeen standbys = {};   ///< Of this node, each the most at a time.
    std::string authentication = "none";  ///< How peers are authenticated: "key", "local users" or "none".
};

/// The report for stderr, lines ended by '\n'. Empty when there is nothing to report: JobSucceeded by a node that ran,
/// and every step is on the disk. Control characters and bytes that are not UTF-8, of which a worker's words may be
/// full, are escaped (printable.h).
std::string report(const Ending& ending, const ReportContext& context);

/// One sentence for a node that has not run its program, or no more at the end, though the job is over; empty for one
/// that has. `unhealthy` is what its health check found.
std::string why_idle(NodePart part, const std::string& unhealthy, const ReportContext& context);

/// Every worker that there was failed in the same way before its first step: that is the program's own doing, or that
/// of what was given to it, and no node's.
bool failed_alike_at_start(const Verdict& verdict);

}  // namespace muster::agent
