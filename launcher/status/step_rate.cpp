#include "launcher/status/step_rate.h"

#include <algorithm>

namespace muster::launcher {

namespace {

constexpr Duration window = 60s;
/// Between two reports of an agent the step does not change.
constexpr Duration report_interval = 15s;

}  // namespace

void StepRate::note(std::int64_t step, Instant now) {
    const bool begins = step < 0 || step_ < 0 || step < step_;
    if (begins) seen_.clear();
    if (begins || step != step_) since_ = now;
    if (!begins && step != step_) seen_.push_back({step, now});
    step_ = step;
    while (seen_.size() > 2 && seen_[1].at < now - window) seen_.pop_front();
}

std::optional<double> StepRate::per_second(Instant now) const {
    if (seen_.size() < 2) return std::nullopt;
    const auto until = std::max(seen_.back().at, now - report_interval);
    const std::chrono::duration<double> time = until - seen_.front().at;
    return static_cast<double>(seen_.back().step - seen_.front().step) / time.count();
}

}  // namespace muster::launcher
