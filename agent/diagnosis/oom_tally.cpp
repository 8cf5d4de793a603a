#include "agent/diagnosis/oom_tally.h"

#include <algorithm>

namespace muster::agent {

namespace {

/// A host that kills more in a minute has no workers left to explain.
constexpr std::int64_t seen_max = 1000;

}  // namespace

void OomTally::begin(std::optional<std::int64_t> total) {
    total_ = total;
    seen_.clear();
}

void OomTally::count(std::optional<std::int64_t> total, Instant now) {
    std::erase_if(seen_, [now](Instant seen) { return seen + fresh < now; });
    if (total && total_) {
        const auto room = seen_max - static_cast<std::int64_t>(seen_.size());
        seen_.insert(seen_.end(), static_cast<std::size_t>(std::clamp<std::int64_t>(*total - *total_, 0, room)), now);
    }
    total_ = total;
}

std::optional<std::int64_t> OomTally::unexplained(Instant now) const {
    if (!total_) return std::nullopt;
    return std::ranges::count_if(seen_, [now](Instant seen) { return seen + fresh >= now; });
}

}  // namespace muster::agent
