// Estimates the daemon's clock: each answered ping bounds the error to half of its round trip.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "rendezvous/base/time.h"

namespace muster::rendezvous {

/// `at` in ns on this host's monotonic clock, as it travels in a Ping.
std::int64_t clock_ns(Instant at);
Instant clock_instant(std::int64_t ns);

class ClockOffset {
  public:
    /// A ping sent at `sent` came back at `received`; the daemon's clock showed `daemon_ns` in between. The sample
    /// counts if it is tighter than what is known, which grows less certain with age: two quartz clocks part by up to
    /// 100 us a second.
    void sample(Instant sent, Instant received, std::int64_t daemon_ns);
    /// Another daemon may answer from now on; the old offset serves until its first sample.
    void forget_at_next_sample() { stale_ = true; }
    /// There is an offset, and it may be another daemon's.
    [[nodiscard]] bool is_stale() const { return known_ && stale_; }

    /// `at` on the daemon's clock in ns and the error of that; {0, -1} before the first sample.
    [[nodiscard]] std::pair<std::int64_t, std::int64_t> daemon_time(Instant at) const;

  private:
    struct Known {
        std::int64_t offset_ns;  ///< daemon's minus ours
        std::int64_t error_ns;   ///< at `measured`
        Instant measured;
    };
    [[nodiscard]] static std::int64_t error_at(const Known& known, Instant at);

    std::optional<Known> known_;
    bool stale_ = false;
};

}  // namespace muster::rendezvous
