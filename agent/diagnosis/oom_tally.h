// Out-of-memory kills without a known victim. A counter reports a kill but not its victim, so a kill explains only one
// worker's end, and only for a short time. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::agent {

class OomTally {
  public:
    /// So long after it was counted a kill may explain an end: one who holds hundreds of GiB takes long to go.
    static constexpr Duration fresh = 60s;

    /// The counter stands at `total` when the workers start; empty: nobody counts. What was before is forgotten.
    void begin(std::optional<std::int64_t> total);
    void count(std::optional<std::int64_t> total, Instant now);
    /// The victim of one of them, the newest, is known: a worker, or any process that the kernel's log names.
    void explain_one() {
        if (!seen_.empty()) seen_.pop_back();
    }
    /// Fresh ones without a victim; empty: nobody counts.
    [[nodiscard]] std::optional<std::int64_t> unexplained(Instant now) const;

  private:
    std::optional<std::int64_t> total_;
    std::vector<Instant> seen_;  ///< Times of kills without a known victim, in order.
};

}  // namespace muster::agent
