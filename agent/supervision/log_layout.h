// The paths of each worker's output and error file. Pure; agent/output/log_directory creates the directories.
//
//   <base>/<job>_<8 random>/attempt_<restart count>/<local rank>/{stdout.log,stderr.log,error.json}
//   <base>/<job>_<8 random>/attempt_<restart count>/filtered_{stdout,stderr}.log
//
// This is torchrun's layout. `attempt` is the restart count: rounds that were not charged share a directory, and their
// output is appended.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/supervision/process_host.h"

namespace muster::agent {

/// Which of one worker's two streams.
struct StreamSet {
    bool out = false;
    bool err = false;
    friend bool operator==(const StreamSet&, const StreamSet&) = default;
};

/// The launcher's choices about output, fixed for the life of the agent.
struct LogChoices {
    /// Base of all directories; empty: a fresh one under $TMPDIR (or /tmp), "torchelastic_<8 random>".
    std::string base;
    /// --log-dir /dev/null: no directory and no error files; redirects, tee and filters then have no effect (as
    /// torchrun).
    bool none = false;
    std::vector<StreamSet> redirects;  ///< Indexed by local rank. Ranks beyond its end have none.
    std::vector<StreamSet> tee;
    std::vector<std::uint32_t> local_ranks_filter;  ///< Empty: all local ranks write to the console.
    std::vector<std::string> stdout_filters;
    std::vector<std::string> stderr_filters;
    /// Before each line that was tee'd: ${role_name}, ${rank}, ${local_rank}; empty: "[<role><local rank>]:".
    std::string prefix_template;
    bool host_prefix = false;  ///< "[<host>:<rank>] " is the only prefix of every line, with or without tee.
    bool to_journal = false;   ///< The launcher's stderr is systemd's journal. Every line goes there with its rank.
    bool stdout_is_terminal = false;  ///< The launcher's stdout is one. A folded, unprefixed stdout then uses a pty.
    bool stderr_is_terminal = false;  ///< The launcher's stderr is a terminal. An unprefixed stderr then uses a pty.
    /// The console shows lines once that several of this node's workers print; so many it has. 0: each line is shown.
    /// Not with `to_journal`.
    std::uint32_t fold_among = 0;
};

/// One worker's place in the round, for prefixes and paths.
struct WorkerPlace {
    std::string host = {};
    std::string role = {};
    std::uint32_t rank = 0;
    std::uint32_t local_rank = 0;
    std::uint64_t round = 0;
};

struct WorkerLogs {
    std::string directory;   ///< Created before the start. Empty: none.
    std::string error_file;  ///< Empty: none.
    StreamPlan stdout_plan;
    StreamPlan stderr_plan;
};

/// Some worker's stdout or stderr goes to a file.
bool writes_files(const LogChoices& choices);

/// "<run directory>/attempt_<restart count>"; empty if `run_directory` is.
std::string attempt_directory(const std::string& run_directory, std::uint32_t restart_count);

/// `attempt` is what attempt_directory gave. stderr of a worker whose output nobody asked to change still passes
/// through a pump, so that its last lines can be reported; stdout of such a worker is inherited.
WorkerLogs worker_logs(const LogChoices& choices, const std::string& attempt, const WorkerPlace& place);

}  // namespace muster::agent
