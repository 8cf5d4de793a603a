// What the agent says about the end of this process's round, and what follows it. The thread that receives the agent's
// messages writes; the thread of the training program waits.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::runtime {

class RoundWord {
  public:
    enum class State {
        running,  ///< The round runs.
        hold,     ///< It is over, and this process is to be held for the next one.
        resumed,  ///< The next one has begun.
        over,     ///< No round follows for this process, or the agent has closed the channel.
    };

    void hold(std::string why) { set(State::hold, std::move(why), {}); }
    void resume(std::vector<std::string> variables) { set(State::resumed, {}, std::move(variables)); }
    void end(std::string why) { set(State::over, std::move(why), {}); }

    /// The state, once it is another than `than` or the deadline has passed.
    State wait_for_other(State than, Instant deadline) {
        std::unique_lock lock(mutex_);
        const auto is_other = [&] { return state_ != than; };
        // wait_until() with a far deadline overflows in libstdc++'s conversion of clocks.
        if (deadline == no_deadline)
            changed_.wait(lock, is_other);
        else
            changed_.wait_until(lock, deadline, is_other);
        return state_;
    }
    [[nodiscard]] State state() {
        const std::lock_guard lock(mutex_);
        return state_;
    }
    [[nodiscard]] std::string why() {
        const std::lock_guard lock(mutex_);
        return why_;
    }
    /// What Resumed held.
    [[nodiscard]] std::vector<std::string> take_variables() {
        const std::lock_guard lock(mutex_);
        return std::exchange(variables_, {});
    }

  private:
    void set(State state, std::string why, std::vector<std::string> variables) {
        const std::lock_guard lock(mutex_);
        if (state_ == State::resumed || state_ == State::over) return;  // after Resumed the agent closes the channel
        state_ = state;
        if (!why.empty()) why_ = std::move(why);
        variables_ = std::move(variables);
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    State state_ = State::running;
    std::string why_;
    std::vector<std::string> variables_;
};

}  // namespace muster::runtime
