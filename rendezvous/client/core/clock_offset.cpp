#include "rendezvous/client/core/clock_offset.h"

#include <algorithm>

namespace muster::rendezvous {

namespace {

constexpr std::int64_t drift_per_second_ns = 100'000;

}  // namespace

std::int64_t clock_ns(Instant at) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

Instant clock_instant(std::int64_t ns) {
    return Instant(std::chrono::duration_cast<Instant::duration>(std::chrono::nanoseconds(ns)));
}

std::int64_t ClockOffset::error_at(const Known& known, Instant at) {
    const auto age = at > known.measured ? at - known.measured : known.measured - at;
    return known.error_ns +
           std::chrono::duration_cast<std::chrono::milliseconds>(age).count() * drift_per_second_ns / 1000;
}

void ClockOffset::sample(Instant sent, Instant received, std::int64_t daemon_ns) {
    const auto error = std::max<std::int64_t>((clock_ns(received) - clock_ns(sent)) / 2, 0);
    if (known_ && !stale_ && error > error_at(*known_, received)) return;
    stale_ = false;
    known_ = Known{daemon_ns - (clock_ns(sent) + error), error, received};
}

std::pair<std::int64_t, std::int64_t> ClockOffset::daemon_time(Instant at) const {
    if (!known_) return {0, -1};
    return {clock_ns(at) + known_->offset_ns, error_at(*known_, at)};
}

}  // namespace muster::rendezvous
