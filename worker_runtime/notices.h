// What this process has been told from outside: to be written by signal handlers and by the thread that hears the
// agent.
#pragma once

#include <atomic>

namespace muster::runtime {

class Notices {
  public:
    /// Async-signal-safe.
    void add() { count_.fetch_add(1, std::memory_order_relaxed); }
    [[nodiscard]] int count() const { return count_.load(std::memory_order_relaxed); }
    void end_round() { round_over_.store(true, std::memory_order_relaxed); }
    /// Async-signal-safe. From now on a stop signal is a stop.
    [[nodiscard]] bool round_over() const { return round_over_.load(std::memory_order_relaxed); }

  private:
    std::atomic<int> count_ = 0;
    std::atomic<bool> round_over_ = false;
    static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
};

}  // namespace muster::runtime
