// The daemon's state as JSON, for people and monitoring.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/job_summary.h"
#include "rendezvous/rounds/seen_nodes.h"

namespace muster::rendezvous {

/// {"jobs": [{"id", "phase", "round", "restarts_used", "restarts_max", "restarts_left", "nodes_min", "nodes_max",
///   "waiting_for", "step", "step_seconds", "samples_per_second", "exposed_communication", "straggler_cost",
///   "slowest_rank", "checkpoint_step", "checkpoints": {TIER: {"step", "age_s"} ...}, "expected_hosts",
///   "goodput": {"text", "wall_clock", a member for each bucket ...}, "nodes": [{"host", "pid", "place", "group_rank",
///   "rank_base", "slots", "role", "connected", "silent_ms",
///     "overdue": [{"rank", "idle_ms", "operation", "place"}], "waiting": ...,
///     "standbys": {"count", "memory_bytes"}}]}]}
/// in the order given, and "embedded": true beside "jobs" where the daemon ends with a node's job. Text that is not
/// UTF-8 has its bad bytes replaced.
std::string status_json(const std::vector<const Job*>& jobs, const ServerConfig& config, Instant now);

/// Where the job's agents answer, for viewers of log files (muster logs JOB), which read from them and not from here:
/// {"round", "waiting", "nodes": [{"host", "pid", "incarnation", "address", "port"}]}. Nodes that wait for a round are
/// counted only, and those without a port are left out. Before the first round there is no "round".
std::string agents_json(const Job& job);

/// A job's part of status_json in pieces, for readers that get only those that changed: `job` without its nodes, and
/// by its agent's incarnation each node that changed since the last call with `seen`. A node's silence is there from 3
/// s and a quarter of the lease on, in whole seconds as "silent_s". In place of "expected_hosts" there is
/// "missing_hosts", words for people.
JobPieces job_pieces(const Job& job, Instant now, SeenNodes& seen);
/// Of a job that is over: its phase and how its time was spent.
std::string job_json(const JobSummary& past);
/// A job without nodes: those that `seen` knows are gone.
JobPieces without_nodes(std::string job, Instant now, SeenNodes& seen);

/// "waiting", "parked", "running", "succeeded", "draining" or "lost".
std::string_view place_name(const Member& member);

/// "gathering", "running", "draining", "ending" or "over".
std::string_view phase_name(const Job& job);

}  // namespace muster::rendezvous
