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
    /// Nothing until the step has changed twice.
    [[nodiscard]] std::optional<double> per_second(Instant now) const;
    /// How long the step has been the same. 0: no step is known.
    [[nodiscard]] Duration unchanged(Instant now) const { return step_ < 0 ? Duration{} : Duration(now - since_); }

  private:
    struct Seen {
        std::int64_t step = 0;
        Instant at;
    };
    std::int64_t step_ = -1;
    Instant since_;  ///< Time of the first look at `step_`.
    /// Each later step when it was seen first, those of the last minute. Not the first one of all: it may have been
    /// reported long before.
    std::deque<Seen> seen_;
};

}  // namespace muster::launcher
