// The newest checkpoint in each tier, and since when the daemon knows it. Pure; Job (job_seen.cpp) feeds it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

class TierLedger {
  public:
    struct Tier {
        std::string_view name;
        std::int64_t step = -1;
        std::optional<Instant> since;  ///< Nothing: the step went back or is older than this ledger: unknown.
    };

    /// Of the whole job. A tier of -1 keeps what was known.
    void take(const native::TierSteps& steps, Instant now);
    /// The job is older than this ledger: the first step of each tier may be too.
    void resume();
    /// A node is lost, and what was in its memory and on its disk: only what is in the shared directory stays known.
    void lose_node();
    /// A tier that is not known has step -1.
    [[nodiscard]] const std::array<Tier, 4>& tiers() const { return tiers_; }

  private:
    std::array<Tier, 4> tiers_{{{"memory", -1, {}}, {"neighbour", -1, {}}, {"local", -1, {}}, {"shared", -1, {}}}};
    std::array<std::int64_t, 4> old_{-1, -1, -1, -1};  ///< The age of a next step up to this one is unknown.
};

/// Adds a node's word: ranks' memory counts as far as all nodes have it, a disk as far as one knows.
void add_node(native::TierSteps& job, const native::TierSteps& node, bool is_first);

}  // namespace muster::rendezvous
