// The subcommands of muster; muster status is in status_command.h. `arguments` are the words after the subcommand. Each
// function prints its result to stdout and errors to stderr, and returns the exit code.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// muster checkpoint: lists, verifies and exports the checkpoints of a directory. Exit codes: 0 if the newest
/// checkpoint is complete or was exported, 1 if not, 2 for wrong usage.
int run_checkpoint(const std::vector<std::string>& arguments);

/// muster config check FILE: validates a job's configuration file before a unit starts with it. Reports every wrong
/// line, then contradictions, a missing program and a port that this user may not use. Exit codes: 0 valid, 2
/// invalid or wrong usage, 126 and 127 as the launcher's.
int run_config(const std::vector<std::string>& arguments, Environment environment);

/// muster doctor: looks for faults of this node before they cost a job. muster doctor explain: what a check means.
/// The exit codes are those of Nagios' plugins: 0 no finding of level warning or above, 1 warning, 2 critical, 3
/// could not look. Wrong usage is 3 too: nothing was looked at.
int run_doctor(const std::vector<std::string>& arguments, const Environment& environment);

/// muster drain NODE [--job ID] [--rdzv-endpoint HOST[:PORT],...]: drains one node of a running job, through an
/// agent of the job on this host, or through its daemon with the job's secret. An error names the known jobs or
/// nodes. Exit codes: 0 done, 1 not done, 2 usage.
int run_drain(const std::vector<std::string>& arguments, const Environment& environment);

/// muster fault KIND TARGET [OPTIONS]: injects a fault into one part of a running job. An error names the known
/// ranks, nodes or jobs. Exit codes: 0 done, 1 not done, 2 usage.
int run_fault(const std::vector<std::string>& arguments, const Environment& environment);

/// muster flight DIR: reports from flight records which rank is missing from which collective. Takes files, and
/// folders that are searched recursively for *.ring. Exit codes: 0, or 2 if nothing could be read.
int run_flight(const std::vector<std::string>& arguments);

/// muster key: the secret of this user's jobs, and the keys of single jobs. Without arguments: makes ~/.muster/key
/// if no secret is set yet, and prints where the secret comes from. "show": prints the secret alone, for a pipe.
/// "set": reads it from stdin into ~/.muster/key. "--job NAME": prints the key of one job. Exit codes: 0, 1 no
/// secret or unusable, 2 usage.
int run_key(const std::vector<std::string>& arguments, const Environment& environment);

/// muster logs: the log files of all workers as one stream, of a folder or from the agents of a running job. Prints
/// lines until the files end, or with --follow until a signal comes. Exit code 0, also when the reader of stdout
/// has gone; 1 if the lines of a node are missing; 2 wrong words or a wrong folder; 78 no usable secret.
int run_logs(const std::vector<std::string>& arguments, const Environment& environment);

/// muster top [JOB]: a screen with the jobs of a daemon and what is wrong, for a person who looks around. Exit
/// codes: 0; 1 the daemon has no such job, or, without a screen, does not answer; 2 usage; 128 and the number of
/// the signal that ended it.
int run_top(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace muster::launcher
