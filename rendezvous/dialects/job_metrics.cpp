#include "rendezvous/dialects/job_metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>

namespace muster::rendezvous {

namespace {

using Jobs = std::vector<const JobSummary*>;

/// Without what is below a microsecond, which takes bytes and tells nobody anything. Large counts stay whole.
double rounded(double value) {
    return value < 1e9 ? std::round(value * 1e6) / 1e6 : value;
}

double seconds(Duration time) {
    return std::chrono::duration<double>(std::chrono::round<std::chrono::milliseconds>(time)).count();
}

/// Of each job whose value is known, which is none below 0. What ends in _total is a counter.
void add_each(MetricsPage& page, const Jobs& jobs, std::string_view name, std::string_view help,
              const std::function<double(const JobSummary&)>& value) {
    page.family(name, name.ends_with("_total") ? MetricKind::counter : MetricKind::gauge, help);
    for (const auto* job : jobs)
        if (const auto known = value(*job); known >= 0) page.add(rounded(known), {{"job", job->id}});
}

/// What counts nothing has no series: a page of many jobs is to stay small.
void add_counts(MetricsPage& page, const JobSummary& job, std::string_view label, const auto& counts) {
    for (const auto& [what, count] : counts)
        if (count > 0) page.add(count, {{"job", job.id}, {label, what}});
}

void add_state(MetricsPage& page, const Jobs& jobs) {
    page.family("muster_job_phase", MetricKind::gauge, "1 for the phase that the job is in.");
    for (const auto* job : jobs) page.add(1, {{"job", job->id}, {"phase", job->phase}});
    page.family("muster_job_nodes", MetricKind::gauge, "Nodes by state.");
    for (const auto* job : jobs) {
        // Alerts compare this one.
        if (!job->nodes.contains("running")) page.add(0, {{"job", job->id}, {"state", "running"}});
        add_counts(page, *job, "state", job->nodes);
    }
    page.family("muster_job_nodes_wanted", MetricKind::gauge, "The least and the most nodes of a round.");
    for (const auto* job : jobs) {
        page.add(job->nodes_min, {{"job", job->id}, {"bound", "min"}});
        page.add(job->nodes_max, {{"job", job->id}, {"bound", "max"}});
    }
    page.family("muster_job_ranks", MetricKind::gauge, "Ranks of running nodes by what they do.");
    for (const auto* job : jobs) add_counts(page, *job, "state", job->ranks);
}

void add_ends(MetricsPage& page, const Jobs& jobs) {
    page.family("muster_job_rounds_total", MetricKind::counter, "Sealed rounds, by what led to them.");
    for (const auto* job : jobs) add_counts(page, *job, "reason", job->counters.rounds);
    page.family("muster_job_failures_total", MetricKind::counter, "Failed workers and lost nodes.");
    for (const auto* job : jobs)
        for (const auto& [what, count] : job->counters.failures)
            page.add(count, {{"job", job->id}, {"kind", what.first}, {"cause", what.second}});
    add_each(page, jobs, "muster_job_restarts_total", "Charged restarts.",
             [](const auto& job) { return job.restarts_used; });
    add_each(page, jobs, "muster_job_restarts_left", "Restarts that are left of --max-restarts.",
             [](const auto& job) { return job.restarts_left; });
}

void add_checkpoints(MetricsPage& page, const Jobs& jobs) {
    page.family("muster_job_checkpoint_step", MetricKind::gauge, "The newest checkpoint of each tier, and of all.");
    for (const auto* job : jobs) {
        if (job->checkpoint_step >= 0) page.add(job->checkpoint_step, {{"job", job->id}, {"tier", "newest"}});
        for (const auto& one : job->checkpoints) page.add(one.step, {{"job", job->id}, {"tier", one.tier}});
    }
    page.family("muster_job_checkpoint_timestamp_seconds", MetricKind::gauge,
                "When the daemon heard of that checkpoint, in seconds since 1970.");
    for (const auto* job : jobs)
        for (const auto& one : job->checkpoints)
            if (one.since_1970) page.add(seconds(*one.since_1970), {{"job", job->id}, {"tier", one.tier}});
}

/// A program that reports no steps has none of these series, except for counters of 0.
void add_steps(MetricsPage& page, const Jobs& jobs) {
    add_each(page, jobs, "muster_job_step", "The last step of the slowest rank.",
             [](const auto& job) { return job.step; });
    add_each(page, jobs, "muster_job_steps_total", "Steps of rank 0, repeated ones included.",
             [](const auto& job) { return job.steps.step_count; });
    add_each(page, jobs, "muster_job_samples_total", "Samples of all ranks, as gradient reducers count them.",
             [](const auto& job) { return job.steps.sample_count; });
    page.family("muster_job_step_seconds", MetricKind::histogram, "Duration of the steps of rank 0.");
    std::array<double, step_time_bounds.size()> bounds{};
    std::ranges::transform(step_time_bounds, bounds.begin(), seconds);
    for (const auto* job : jobs)
        page.add_histogram(bounds, job->steps.times, seconds(job->steps.step_time), {{"job", job->id}});
    add_each(page, jobs, "muster_job_samples_per_second", "Samples of all ranks a second, lately.",
             [](const auto& job) { return job.steps.samples_per_second.value_or(-1); });
    add_each(page, jobs, "muster_job_exposed_communication_ratio",
             "Share of a step in which ranks wait for communication.",
             [](const auto& job) { return job.steps.exposed.value_or(-1); });
    add_each(page, jobs, "muster_job_straggler_cost_ratio",
             "Share of a step in which the mean rank waits for the slowest one.",
             [](const auto& job) { return job.steps.straggler_cost.value_or(-1); });
    add_checkpoints(page, jobs);
    add_each(page, jobs, "muster_job_checkpoint_failures_total", "Saves of checkpoints that failed.",
             [](const auto& job) { return job.steps.checkpoint_failure_count; });
}

void add_time(MetricsPage& page, const Jobs& jobs) {
    // Most jobs have no time in these. The others are there from 0 on: a rate would miss time that comes in one piece.
    const auto is_rare = [](TimeBucket bucket) {
        using enum TimeBucket;
        return bucket == queued || bucket == data_wait || bucket == hung || bucket == checkpoint_blocked;
    };
    page.family("muster_job_time_seconds_total", MetricKind::counter,
                "How the time since the first agent was spent. The buckets exclude each other.");
    for (const auto* job : jobs)
        for (std::size_t i = 0; i < job->time.bucket_count(); ++i)
            if (!is_rare(static_cast<TimeBucket>(i)) || job->time.buckets[i] > Duration::zero())
                page.add(seconds(job->time.buckets[i]), {{"job", job->id}, {"bucket", job->time.name_of(i)}});
    page.family("muster_job_rank_seconds_total", MetricKind::counter,
                "The same time, times ranks. scaled_down: the ranks that were missing against the most nodes.");
    for (const auto* job : jobs) {
        const auto add = [&](double value, std::string_view bucket) {
            if (value > 0) page.add(std::round(value), {{"job", job->id}, {"bucket", bucket}});
        };
        for (std::size_t i = 0; i < job->time.bucket_count(); ++i) add(job->time.rank_seconds[i], job->time.name_of(i));
        add(job->time.scaled_down, "scaled_down");
    }
    add_each(page, jobs, "muster_job_time_pending_seconds", "Time of the running round that is in no bucket yet.",
             [](const auto& job) { return seconds(job.time.pending); });
    add_each(page, jobs, "muster_job_lost_work_seconds_total", "Stepping time after the checkpoint that was resumed.",
             [](const auto& job) { return seconds(job.time.lost_work); });
    add_each(page, jobs, "muster_job_lost_steps_total", "Steps after the checkpoint that was resumed.",
             [](const auto& job) { return job.time.lost_step_count; });
    add_each(page, jobs, "muster_job_goodput_ratio", "Stepping time without lost work, of the wall clock.",
             [](const auto& job) { return job.time.goodput(); });
}

}  // namespace

void add_job_metrics(MetricsPage& page, const std::vector<JobSummary>& jobs) {
    Jobs shown;
    for (std::size_t i = 0; i < jobs.size() && i < metrics_jobs_max; ++i) shown.push_back(&jobs[i]);
    page.add_one("muster_jobs", MetricKind::gauge, "Jobs, with those that ended in the last hour.", jobs.size());
    page.add_one("muster_jobs_left_out", MetricKind::gauge, "Jobs without series of their own.",
                 jobs.size() - shown.size());
    add_state(page, shown);
    add_ends(page, shown);
    add_steps(page, shown);
    add_time(page, shown);
}

}  // namespace muster::rendezvous
