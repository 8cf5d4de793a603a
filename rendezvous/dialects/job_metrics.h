// The families of jobs in GET /metrics. Pure.
#pragma once

#include <vector>

#include "rendezvous/base/text/metrics_page.h"
#include "rendezvous/rounds/job_summary.h"

namespace muster::rendezvous {

/// A daemon of thousands of jobs would make a page of megabytes.
inline constexpr std::size_t metrics_jobs_max = 200;

/// Adds the first metrics_jobs_max jobs, and muster_jobs_left_out, the number of the others.
void add_job_metrics(MetricsPage& page, const std::vector<JobSummary>& jobs);

}  // namespace muster::rendezvous
