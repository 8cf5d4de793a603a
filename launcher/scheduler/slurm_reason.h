// Determines why Slurm sent a signal: the time limit, a preemption, or scancel. Pure.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "launcher/config/environment.h"

namespace muster::launcher {

/// The job id for "scontrol show job": "4711", or "4711_3" for a task of an array, because the array's own id selects
/// all tasks. Empty outside of Slurm.
std::string slurm_job_name(const Environment& environment);

/// The reason from a line of "scontrol -o show job" at the time of the signal, e.g. "Slurm's time limit for this job
/// (00:10:00) is over". Empty: unknown. Of several lines (components of a heterogeneous job) the first one counts.
std::string slurm_reason(std::string_view job_line);

/// The reason from the clock (seconds since 1970) and SLURM_JOB_END_TIME, which Slurm sets since 23.02. Empty without
/// it.
std::string slurm_reason(const Environment& environment, std::chrono::seconds now);

/// The value of `name` in a line of "scontrol -o show ...": NAME=VALUE words with blanks between. Empty where the line
/// has none. Of several lines the first counts.
std::string_view scontrol_field(std::string_view lines, std::string_view name);

}  // namespace muster::launcher
