// How fast a job steps, from the steps that are seen now and then. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "rendezvous/base/time.h"

namespace muster::launcher {

/// Agents report steps every 10 s, so the rate is that of the last minute.
class StepRate {
  public:
    /// The step of the slowest rank; -1: unknown. A step that goes back begins anew.
    void note(std::int64_t step, Instant now);
    /// Nothing until two steps were seen.
    [[nodiscard]] std::optional<double> per_second(Instant now) const;
    /// How long the step has been the same. 0: no step is known.
    [[nodiscard]] Duration unchanged(Instant now) const;

  private:
    struct Seen {
        std::int64_t step = 0;
        Instant at;
    };
    std::deque<Seen> seen_;  ///< Each step when it was seen first, those of the last minute.
};

}  // namespace muster::launcher
