// The preemption notices and the end of the round, as this process has received them. Signal handlers and the thread
// that receives the agent's messages write here.
#pragma once

#include <atomic>
#include <chrono>

namespace muster::runtime {

class Notices {
  public:
    /// A message. A notice within `one_notice` of another is the same notice by another path: the agent's message and
    /// its signal, or a scheduler's signal to all processes, which the agent forwards.
    void add() {
        const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
        const auto before = last_.exchange(now);
        if (before == 0 || now - before > one_notice.count()) count_.fetch_add(1);
    }
    /// Async-signal-safe. Returns false if the round is over: this is a stop and not a notice.
    bool add_signal(int signal) {
        // Before reading the flag. end_round() uses the opposite order, so one of them sees both.
        signal_.store(signal);
        if (round_over_.load()) return false;
        add();
        return true;
    }
    [[nodiscard]] int count() const { return count_.load(); }
    /// From now on a signal is a stop. The agent sends its message before the signal, but it may be read after it.
    /// Returns the signal that was taken for a notice and must be raised again, or 0.
    [[nodiscard]] int end_round() {
        round_over_.store(true);
        return signal_.exchange(0);
    }
    [[nodiscard]] bool round_over() const { return round_over_.load(); }
    /// The signals are no longer handled.
    void forget_signal() { signal_.store(0); }

  private:
    static constexpr std::chrono::steady_clock::duration one_notice = std::chrono::seconds(2);

    std::atomic<int> count_ = 0, signal_ = 0;
    std::atomic<std::chrono::steady_clock::rep> last_ = 0;
    std::atomic<bool> round_over_ = false;
    static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
                  std::atomic<std::chrono::steady_clock::rep>::is_always_lock_free);
};

}  // namespace muster::runtime
