// Real time of the simulated world, and the monotonic clocks of its hosts, which all differ from it.
#pragma once

#include "rendezvous/base/time.h"

namespace muster::simulation {

/// Real time since the world began. Only the simulator sees it; the cores see their own host's clock.
using Moment = Duration;
inline constexpr Moment never = Moment::max();

/// One host's monotonic clock: starts anywhere and runs a little fast or slow.
struct HostClock {
    Duration offset{};           ///< what it shows at the world's beginning
    std::int64_t drift_ppm = 0;  ///< how many millionths it runs fast

    [[nodiscard]] Instant local(Moment moment) const {
        return Instant{offset + moment + moment * drift_ppm / 1'000'000};
    }
    /// The first moment at which this clock shows `instant` or later.
    [[nodiscard]] Moment moment(Instant instant) const {
        if (instant == no_deadline) return never;
        const Duration shown = instant.time_since_epoch() - offset;
        // Each turn leaves an error of drift times the last one.
        Moment guess = shown;
        for (int turn = 0; turn < 4; ++turn) guess = shown - guess * drift_ppm / 1'000'000;
        while (local(guess) < instant) guess += instant - local(guess);
        return guess;
    }
};

}  // namespace muster::simulation
