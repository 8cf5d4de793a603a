// Counts durations, for a histogram in /metrics.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace muster {

class TimeHistogram {
  public:
    /// Upper bounds in seconds. What exceeds the last one is counted beyond it.
    static constexpr std::array<double, 9> bounds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};

    void add(Duration time) {
        const auto seconds = std::chrono::duration<double>(time).count();
        const auto bucket = std::ranges::lower_bound(bounds, seconds) - bounds.begin();
        ++counts_[static_cast<std::size_t>(bucket)];
        sum_ += time;
    }

    /// Each duration is counted in one of them.
    [[nodiscard]] const std::array<std::uint64_t, bounds.size() + 1>& counts() const { return counts_; }
    [[nodiscard]] double sum_seconds() const { return std::chrono::duration<double>(sum_).count(); }

  private:
    std::array<std::uint64_t, bounds.size() + 1> counts_{};
    Duration sum_{};
};

}  // namespace muster
