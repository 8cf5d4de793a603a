#include "launcher/status/step_rate.h"

#include <algorithm>

namespace muster::launcher {

namespace {

constexpr Duration window = 60s;
/// Between two reports of an agent the step does not change.
constexpr Duration report_interval = 15s;

}  // namespace

void StepRate::note(std::int64_t step, Instant now) {
    if (step < 0 || (!seen_.empty() && step < seen_.back().step)) seen_.clear();
    if (step < 0) return;
    if (seen_.empty() || step != seen_.back().step) seen_.push_back({step, now});
    while (seen_.size() > 2 && seen_[1].at < now - window) seen_.pop_front();
}

std::optional<double> StepRate::per_second(Instant now) const {
    if (seen_.size() < 2) return std::nullopt;
    const auto until = std::max(seen_.back().at, now - report_interval);
    const std::chrono::duration<double> time = until - seen_.front().at;
    return static_cast<double>(seen_.back().step - seen_.front().step) / time.count();
}

Duration StepRate::unchanged(Instant now) const {
    return seen_.empty() ? Duration{} : Duration(now - seen_.back().at);
}

}  // namespace muster::launcher
