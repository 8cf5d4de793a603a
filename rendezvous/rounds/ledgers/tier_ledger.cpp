#include "rendezvous/rounds/ledgers/tier_ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace muster::rendezvous {

void TierLedger::take(const native::TierSteps& steps, Instant now) {
    const std::array<std::int64_t, 4> known{steps.memory, steps.neighbour, steps.local, steps.shared};
    for (std::size_t i = 0; i < known.size(); ++i) {
        auto& tier = tiers_[i];
        if (known[i] < 0 || known[i] == tier.step) continue;
        tier.since = known[i] > std::max(tier.step, std::exchange(old_[i], -1)) ? std::optional(now) : std::nullopt;
        tier.step = known[i];
    }
}

void TierLedger::resume() {
    old_.fill(std::numeric_limits<std::int64_t>::max());
}

void TierLedger::lose_node() {
    for (std::size_t i = 0; i + 1 < tiers_.size(); ++i) {
        old_[i] = std::max(old_[i], tiers_[i].step);
        tiers_[i].step = -1;
        tiers_[i].since.reset();
    }
}

void add_node(native::TierSteps& job, const native::TierSteps& node, bool is_first) {
    job.memory = is_first ? node.memory : std::min(job.memory, node.memory);
    job.neighbour = is_first ? node.neighbour : std::min(job.neighbour, node.neighbour);
    job.local = std::max(job.local, node.local);
    job.shared = std::max(job.shared, node.shared);
}

}  // namespace muster::rendezvous
