// The text of scaling_report(): the costs of a run, and advice.
#include <algorithm>
#include <cmath>

#include "muster/step_cost.h"
#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

constexpr double exposed_share_max = 0.10;
/// Below this a bucket's fixed cost shows beside its transfer.
constexpr std::size_t small_bucket_bytes = std::size_t{4} << 20;

double seconds(Duration duration) {
    return std::chrono::duration<double>(duration).count();
}

/// With three digits also where a step takes a few milliseconds.
std::string shown(Duration duration) {
    const double ms = 1e3 * seconds(duration);
    if (ms >= 100) return describe(duration);
    const double digits = ms >= 10 ? 10 : 100;
    return cat(std::round(ms * digits) / digits, " ms");
}

std::string percent(double share) {
    return cat(static_cast<int>(std::lround(100 * share)), " %");
}

bool same(double left, double right) {
    return std::abs(left - right) <= 0.01 * std::max(std::abs(left), std::abs(right));
}

struct Latest {
    std::size_t rank = 0;
    Duration by{};
};

/// The rank that kept the others waiting longest, against the middle one.
Latest latest(const CostSummary& summary) {
    if (summary.lateness.size() < 2) return {};
    const auto last = std::max_element(summary.lateness.begin(), summary.lateness.end());
    auto sorted = summary.lateness;
    std::sort(sorted.begin(), sorted.end());
    return {static_cast<std::size_t>(last - summary.lateness.begin()), *last - sorted[(sorted.size() - 1) / 2]};
}

/// How many backward passes must share one synchronisation for the exposed part to fall to 10 % of a step.
int accumulation_needed(const CostSummary& summary) {
    const double rest = seconds(summary.mean.total - summary.mean.exposed);
    return rest <= 0 ? 0
                     : static_cast<int>(std::ceil(seconds(summary.mean.exposed) * (1 / exposed_share_max - 1) / rest));
}

std::vector<std::string> advice_for(const CostSummary& summary) {
    std::vector<std::string> advice;
    const auto late = latest(summary);
    if (2 * late.by > summary.mean.exposed) {
        advice.push_back(
            cat("rank ", late.rank, " is late by ", shown(late.by),
                " on average, which is most of the waiting: first check its data loading, its share of the "
                "work and its host"));
    }
    if (summary.bucket_count == 1 && summary.bucket_bytes > small_bucket_bytes) {
        advice.push_back(cat("all gradients are in one bucket, so nothing overlaps: set bucket_cap_mb to ",
                             std::max<std::size_t>(1, summary.bucket_bytes / 4 >> 20), " or to auto"));
    } else if (summary.bucket_count > 1 && summary.bucket_bytes / summary.bucket_count < small_bucket_bytes) {
        advice.push_back(cat("the ", summary.bucket_count, " buckets are small (",
                             summary.bucket_bytes / summary.bucket_count >> 10,
                             " KiB on average): raise bucket_cap_mb, or set it to auto"));
    }
    if (const int passes = accumulation_needed(summary); passes > 1) {
        advice.push_back(cat("accumulate gradients over ", passes,
                             " backward passes before each synchronised one (begin_local_step): that brings "
                             "communication to 10 % of the step"));
    }
    if (summary.mean.bytes * 4 > summary.bucket_bytes * 3) {
        advice.emplace_back("compress gradients: wire bf16 or f16 halves the bytes, int8 quarters them");
    }
    return advice;
}

void compare(ScalingReport& report, const CostSummary& summary, const Baseline& baseline) {
    const double ours = summary.samples_per_second() / summary.world;
    const double theirs = baseline.samples_per_second / baseline.world;
    if (!(theirs > 0)) {
        report.text += "The baseline has no samples per second, so nothing was compared with it.\n";
        return;
    }
    const double efficiency = ours / theirs;
    if (same(summary.mean.samples, baseline.samples_per_step)) report.strong = efficiency;
    if (same(summary.mean.samples / summary.world, baseline.samples_per_step / baseline.world)) {
        report.weak = efficiency;
    }
    const std::string against = cat(" against ", baseline.world, baseline.world == 1 ? " worker" : " workers");
    if (report.strong) report.text += cat("Strong scaling", against, ": ", percent(efficiency), " efficient.\n");
    if (report.weak) report.text += cat("Weak scaling", against, ": ", percent(efficiency), " efficient.\n");
    if (!report.strong && !report.weak) {
        report.text += cat("The baseline has neither the same batch in total nor the same batch per worker, so ",
                           percent(efficiency), " of a baseline worker's rate is not an efficiency.\n");
    }
}

}  // namespace

double CostSummary::samples_per_second() const {
    return mean.total > Duration{} ? mean.samples / seconds(mean.total) : 0;
}

double CostSummary::exposed_share() const {
    return mean.total > Duration{} ? seconds(mean.exposed) / seconds(mean.total) : 0;
}

ScalingReport scaling_report(const CostSummary& summary, const std::optional<Baseline>& baseline) {
    ScalingReport report;
    if (summary.step_count == 0) {
        report.text = cat("No step is counted yet: the first ", summary.left_out_count, " were warm-up.\n");
        return report;
    }
    const auto& mean = summary.mean;
    report.estimated = 1 - summary.exposed_share();
    report.text = cat(summary.step_count, " steps on ", summary.world, summary.world == 1 ? " worker" : " workers",
                      " (", summary.left_out_count, " not counted; the first took ", shown(summary.first.total),
                      "): ", shown(mean.total), " each = ", shown(mean.compute), " compute + ", shown(mean.data_wait),
                      " waiting for data + ", shown(mean.exposed), " exposed communication (",
                      percent(summary.exposed_share()), "; ", shown(mean.overlap()), " more was hidden); ",
                      static_cast<std::int64_t>(std::lround(summary.samples_per_second())), " samples/s.\n");
    if (baseline)
        compare(report, summary, *baseline);
    else {
        report.text += cat("Without a baseline: at most ", percent(report.estimated),
                           " efficient, by the share of the step that is not exposed communication.\n");
    }
    if (summary.exposed_share() > exposed_share_max) report.advice = advice_for(summary);
    for (const auto& sentence : report.advice) report.text += cat("Try: ", sentence, ".\n");
    return report;
}

}  // namespace muster
