// torch's timer protocol (torch.distributed.elastic.timer, file_based_local_timer): workers write one JSON object per
// line into a FIFO to set, renew or release a timer. Pure.
//
//   {"version": 1, "pid": 42, "scope_id": "train", "expiration_time": 1700000000.5, "signal": 9}
//
// Pid and scope identify a timer. An expiration time below zero releases it. Times are on the worker's wall clock,
// which is this host's. The remaining time is measured on the steady clock from then on, because a wall clock may be
// set. The bytes are not trusted: size, number and types are checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::agent {

struct ExpiredTimer {
    std::int32_t pid = 0;
    std::string scope;
    std::int32_t signal = 0;
    Duration late{};  ///< Time since its deadline.
};

/// The same moment on both clocks.
struct TimerNow {
    double wall_s = 0;  ///< Seconds since 1970.
    Instant steady;
};

class WorkerTimers {
  public:
    static constexpr std::size_t line_bytes_max = 4096;  ///< Maximum of one atomic write to a FIFO.
    static constexpr std::size_t timers_max = 10'000;

    /// Bytes as they come from the FIFO; a line may arrive in pieces. Returns how many lines were no request.
    std::size_t read(std::string_view bytes, TimerNow now);
    /// Those that have run out, taken away; of one process the earliest, because its signal ends the others too.
    std::vector<ExpiredTimer> take_expired(Instant now);
    /// The process has ended: what it had set is void.
    void forget(std::int32_t pid);
    /// When the next one runs out; no_deadline: there is none.
    [[nodiscard]] Instant next_expiry() const;

  private:
    struct Timer {
        Instant expires;
        std::int32_t signal = 0;
    };
    bool read_line(std::string_view line, TimerNow now);

    std::map<std::pair<std::int32_t, std::string>, Timer> timers_;  ///< Keyed by pid and scope.
    std::string rest_;
    bool skipping_ = false;  ///< True inside a line that is too long.
};

}  // namespace muster::agent
