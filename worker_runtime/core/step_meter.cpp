#include "worker_runtime/core/step_meter.h"

#include <algorithm>

#include "rendezvous/base/check.h"

namespace muster::runtime {

namespace {

void add(StepCost& sum, const StepCost& step) {
    sum.total += step.total;
    sum.data_wait += step.data_wait;
    sum.exposed += step.exposed;
    sum.compute += step.compute;
    sum.communication += step.communication;
    sum.bytes += step.bytes;
    sum.samples += step.samples;
}

StepCost divided(const StepCost& sum, std::uint64_t count) {
    const auto n = static_cast<Duration::rep>(count);
    return {.total = sum.total / n,
            .data_wait = sum.data_wait / n,
            .exposed = sum.exposed / n,
            .compute = sum.compute / n,
            .communication = sum.communication / n,
            .bytes = sum.bytes / count,
            .samples = sum.samples / static_cast<double>(count)};
}

}  // namespace

StepMeter::StepMeter(int world) : world_(world), lateness_sums_(static_cast<std::size_t>(world)) {}

void StepMeter::start(Instant now) {
    began_ = now;
    current_ = {};
}

void StepMeter::add_waits(std::span<const Duration> waits) {
    MUSTER_CHECK(waits.size() == lateness_sums_.size(), waits.size(), world_);
    const Duration longest = *std::max_element(waits.begin(), waits.end());
    for (std::size_t rank = 0; rank < waits.size(); ++rank) lateness_sums_[rank] += longest - waits[rank];
    ++lateness_count_;
}

const StepCost& StepMeter::end_step(Instant now, double samples, StepKind kind) {
    current_.total = now - began_;
    current_.samples = samples;
    current_.compute = std::max(current_.total - current_.data_wait - current_.exposed, Duration{});
    last_ = current_;
    const std::uint64_t number = step_count_ + left_out_count_;
    if (number == 0) first_ = last_;
    if (number < warm_up_count || kind == StepKind::unusual) {
        ++left_out_count_;
    } else {
        ++step_count_;
        add(sum_, last_);
    }
    start(now);
    return last_;
}

CostSummary StepMeter::summary() const {
    CostSummary summary;
    summary.world = world_;
    summary.step_count = step_count_;
    summary.left_out_count = left_out_count_;
    summary.first = first_;
    if (step_count_ > 0) summary.mean = divided(sum_, step_count_);
    summary.lateness = lateness_sums_;
    if (lateness_count_ > 0) {
        for (auto& each : summary.lateness) each /= static_cast<Duration::rep>(lateness_count_);
    }
    return summary;
}

}  // namespace muster::runtime
