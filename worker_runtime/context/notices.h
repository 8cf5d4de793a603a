// What this process has been told from outside: to be written by signal handlers and by the thread that hears the
// agent.
#pragma once

#include <atomic>
#include <chrono>

namespace muster::runtime {

class Notices {
  public:
    /// A message. What comes within `one_notice` of another is the same notice on another way: the agent's message and
    /// its signal, or a scheduler's signal to all processes, which the agent passes on.
    void add() {
        const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
        const auto before = last_.exchange(now);
        if (before == 0 || now - before > one_notice.count()) count_.fetch_add(1);
    }
    /// Async-signal-safe. False: the round is over, so this is a stop and not a notice.
    bool add_signal(int signal) {
        signal_.store(signal);  // before the look, as end_round() does it the other way round: one of them sees both
        if (round_over_.load()) return false;
        add();
        return true;
    }
    [[nodiscard]] int count() const { return count_.load(); }
    /// From now on a signal is a stop. The agent's word of it comes before its signal, but may be read after: gives the
    /// signal that was taken for a notice and has to be sent again, or 0.
    [[nodiscard]] int end_round() {
        round_over_.store(true);
        return signal_.exchange(0);
    }
    [[nodiscard]] bool round_over() const { return round_over_.load(); }
    /// Nobody handles signals any more.
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
