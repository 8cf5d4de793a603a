// Where the workers of a job are: their frames, from the agents of their nodes.
#pragma once

#include <string_view>
#include <vector>

#include "launcher/commands/job_logs.h"
#include "launcher/status/http_get.h"

namespace muster::launcher {

/// On the port of an agent, with "?job=JOB" and, of some ranks, "&ranks=0-7,31". The access is that of the log files.
inline constexpr std::string_view stacks_path = "/stacks";

/// Of the request's nodes and ranks. 16 nodes are asked at a time, each for at most 5 s; `sink` gets one text of all
/// answers. `trouble` gets a sentence about each node that gives no answer, and about ranks that no node has.
void job_stacks(const LogRequest& request, const JobAgents& agents, const std::vector<Way>& ways,
                const JobLogs::Sink& sink, const JobLogs::Trouble& trouble);

}  // namespace muster::launcher
