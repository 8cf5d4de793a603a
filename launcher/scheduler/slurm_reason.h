// Why Slurm has sent a signal: the time limit, a preemption, or somebody's scancel. Pure.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// This job as "scontrol show job" wants it: "4711", or "4711_3" for a task of an array, since the array's own number,
/// which is its last task's too, would tell of all of them. Empty outside of Slurm.
std::string slurm_job_name(const Environment& environment);

/// From the line of "scontrol -o show job" at the time of the signal, e.g. "Slurm's time limit for this job
/// (00:10:00) is over"; empty where it says nothing. Of several lines (the components of a heterogeneous job) the first
/// counts.
std::string slurm_reason(std::string_view job_line);

/// From the clock (seconds since 1970) and SLURM_JOB_END_TIME, which Slurm sets since 23.02; empty without it.
std::string slurm_reason(const Environment& environment, std::chrono::seconds now);

}  // namespace muster::launcher
