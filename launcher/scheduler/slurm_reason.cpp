#include "launcher/scheduler/slurm_reason.h"

#include <array>
#include <optional>

#include "launcher/config/option_values.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

namespace {

using namespace std::chrono_literals;
using Seconds = std::chrono::seconds;

/// A notice before the time limit (--signal=USR1@TIME) is rarely earlier than this. Slurm sends it up to 60 s early.
constexpr Seconds usual_notice_max = 15min;
/// The maximum of --signal. Slurm does not report the requested time.
constexpr Seconds notice_max = 65'535s + 1min;
/// Slurm checks time limits every 30 s, and the clocks of nodes differ slightly.
constexpr Seconds clock_slack = 5s;

/// Parses "2-03:04:05" or "03:04:05". Nothing for UNLIMITED and the like.
std::optional<Seconds> slurm_time(std::string_view text) {
    std::int64_t days = 0;
    if (const auto dash = text.find('-'); dash != std::string_view::npos) {
        const auto number = whole_number(text.substr(0, dash), 0, 1'000'000);
        if (!number) return std::nullopt;
        days = *number;
        text.remove_prefix(dash + 1);
    }
    const auto parts = split(text, ':');
    if (parts.size() != 3) return std::nullopt;
    auto sum = Seconds(days * 24h);
    constexpr std::array<Seconds, 3> units{1h, 1min, 1s};
    for (std::size_t i = 0; i < 3; ++i) {
        const auto number = whole_number(parts[i], 0, 99);
        if (!number) return std::nullopt;
        sum += *number * units[i];
    }
    return sum;
}

bool is_set(std::string_view time) {
    return !time.empty() && time != "None" && time != "N/A" && time != "Unknown";
}

std::string before_the_limit(Seconds left) {
    if (left <= usual_notice_max) return cat("this job's time limit in Slurm ends in ", describe(left));
    if (left <= notice_max)
        return cat("not a preemption by Slurm; the time limit ends in ", describe(left),
                   ": the notice of --signal if it was requested this early, or a user sent it");
    return cat("neither a preemption by Slurm nor the time limit, which ends in ", describe(left), ": a user sent it");
}

}  // namespace

std::string slurm_job_name(const Environment& environment) {
    const auto array = value_or_empty(environment, "SLURM_ARRAY_JOB_ID");
    const auto task = value_or_empty(environment, "SLURM_ARRAY_TASK_ID");
    if (!array.empty() && !task.empty()) return cat(array, '_', task);
    return std::string(value_or_empty(environment, "SLURM_JOB_ID"));
}

std::string slurm_reason(std::string_view job_line) {
    const auto limit_text = scontrol_field(job_line, "TimeLimit");
    if (scontrol_field(job_line, "Reason") == "TimeLimit")
        return cat("Slurm's time limit for this job (", limit_text, ") is over");
    if (is_set(scontrol_field(job_line, "PreemptTime"))) return "Slurm preempted this job for another one";
    const auto state = scontrol_field(job_line, "JobState");
    if (state == "COMPLETING" || state == "CANCELLED") return "this job was cancelled (scancel)";
    // The second one is that of a running job until the controller knows that its signal has arrived.
    if (state != "RUNNING" && state != "SIGNALING") return {};
    const auto limit = slurm_time(limit_text), run = slurm_time(scontrol_field(job_line, "RunTime"));
    if (limit && run) return before_the_limit(std::max(*limit - *run, 0s));
    return "neither a preemption by Slurm nor a time limit (this job has none): a user sent it";
}

std::string slurm_reason(const Environment& environment, std::chrono::seconds now) {
    constexpr std::int64_t end_of_time = std::int64_t{1} << 40;
    const auto end = whole_number(value_or_empty(environment, "SLURM_JOB_END_TIME"), 1, end_of_time);
    if (!end) return {};
    const auto left = Seconds(*end) - now;
    if (left <= clock_slack) return "Slurm's time limit for this job is over";
    if (left <= usual_notice_max) return before_the_limit(left);
    return cat("not the time limit, which ends in ", describe(left), ": a preemption by Slurm, scancel",
               left <= notice_max ? ", or the notice of --signal if it was requested this early" : "");
}

std::string_view scontrol_field(std::string_view lines, std::string_view name) {
    for (const auto word : split(lines.substr(0, lines.find('\n')), ' '))
        if (word.starts_with(name) && word.substr(name.size()).starts_with('=')) return word.substr(name.size() + 1);
    return {};
}

}  // namespace muster::launcher
