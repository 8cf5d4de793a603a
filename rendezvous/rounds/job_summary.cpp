#include "rendezvous/rounds/job_summary.h"

#include <algorithm>

#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/status.h"

namespace muster::rendezvous {

namespace {

constexpr Duration past_kept = 1h;
constexpr std::size_t past_max = 200;

}  // namespace

JobSummary summary_of(const Job& job, Instant now) {
    JobSummary summary{.id = job.id(),
                       .phase = phase_name(job),
                       .nodes = {},
                       .ranks = {},
                       .nodes_min = job.terms().nodes_min,
                       .nodes_max = job.terms().nodes_max,
                       .restarts_used = job.restarts_used(),
                       .restarts_max = job.terms().restarts_max,
                       .restarts_left = job.restarts_left(now),
                       .round = job.round().number,
                       .step = job.slowest_step(),
                       .checkpoint_step = job.checkpoint_step(),
                       .time = job.goodput().totals(now),
                       .counters = job.counters(),
                       .steps = job.steps().summary()};
    for (const auto& tier : job.tiers().tiers())
        if (tier.step >= 0)
            summary.checkpoints.push_back(
                {tier.name, tier.step, tier.since ? std::optional(job.since_1970(*tier.since)) : std::nullopt});
    for (const auto& [incarnation, member] : job.members()) {
        ++summary.nodes[place_name(member)];
        if (member.place != Place::lost)
            summary.silence_max = std::max(summary.silence_max, now - member.last_received);
        if (member.place != Place::running) continue;
        const auto& seen = member.ranks_seen;
        summary.ranks["training"] += seen.training;
        summary.ranks["waiting"] += seen.waiting;
        summary.ranks["overdue"] += seen.overdue;
        summary.ranks["stopped"] += seen.stopped;
        summary.ranks["section"] += seen.section;
    }
    return summary;
}

void PastJobs::add(JobSummary summary, Instant now) {
    summary.phase = "over";
    summary.nodes.clear();
    summary.ranks.clear();
    summary.silence_max = {};
    summary.steps.step_seconds.reset();
    summary.steps.samples_per_second.reset();
    summary.steps.exposed.reset();
    summary.steps.straggler_cost.reset();
    std::erase_if(jobs_, [&](const Past& past) { return past.until <= now || past.summary.id == summary.id; });
    if (jobs_.size() == past_max) jobs_.pop_front();
    jobs_.push_back({now + past_kept, std::move(summary)});
}

void PastJobs::append_to(std::vector<JobSummary>& jobs, Instant now) const {
    const auto present = static_cast<std::ptrdiff_t>(jobs.size());
    for (const auto& [until, summary] : jobs_)
        if (until > now &&
            !std::ranges::binary_search(jobs.begin(), jobs.begin() + present, summary.id, {}, &JobSummary::id))
            jobs.push_back(summary);
}

const JobSummary* PastJobs::find(std::string_view id, Instant now) const {
    const auto found =
        std::ranges::find_if(jobs_, [&](const Past& past) { return past.until > now && past.summary.id == id; });
    return found == jobs_.end() ? nullptr : &found->summary;
}

}  // namespace muster::rendezvous
