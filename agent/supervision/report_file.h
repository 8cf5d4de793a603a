// The report as a program reads it (--report FILE): the same facts as failure_report.h's text, in JSON. Pure; the
// launcher writes it.
//
//   {"format": 1, "job": "none", "host": "gpu01", "outcome": "failed", "exit_code": 137, "why": "...",
//    "round": 3, "restart_count": 3,
//    "first": {"kind": "killed", "host": "gpu07", "rank": 5, ..., "end": {"type": "signal", "signal": 9, ...},
//              "cause": {"kind": "out_of_memory", "text": "...", "core_file": ""}, ...},
//    "groups": [{"kind": "killed", "error": "...", "ranks": "5", "count": 1}, ...],
//    "other_failure_count": 2, "stopped_count": 5, "text": "..."}
//
// outcome: succeeded, unsaved (every worker exited 0, and a step did not come to the disk), failed, crash_loop,
// cancelled, no_rendezvous, refused, agent_failed, set_up_failed, drained, not_launched. Beyond the first line above a
// field stands where it has a meaning: first, groups and the counts in "failed" and "crash_loop"; part, in these two
// and in "succeeded", is what this node did of the job: "ran" its program, or not, as a "spare", or because it came
// "late"; goodput, there too, is how the job's time was spent, as a sentence; signal_reason where a scheduler has sent
// a signal and says why; unsaved, a text, where a step that was in memory at the end is not on the disk; standbys,
// where this node had standby processes: {"count": 8, "memory_bytes": 1845493760}, each the most at a time. Bytes that
// are no UTF-8 become U+FFFD.
#pragma once

#include <string>
#include <string_view>

#include "agent/supervision/failure_report.h"

namespace muster::agent {

/// The whole file, ended by '\n'. `text` is what the person at the launcher reads; empty after success, but
/// for a node that has not run its program.
std::string report_file(const Ending& ending, const ReportContext& context, int exit_code, std::string_view text);

/// The "outcome" of that file.
std::string outcome(const Ending& ending, const ReportContext& context);

/// The same for a launcher that could not begin.
std::string report_file(const ReportContext& context, int exit_code, std::string_view why);

}  // namespace muster::agent
