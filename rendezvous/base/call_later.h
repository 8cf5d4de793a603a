// Handlers of asio's waits, without what each of them would repeat. It includes nothing of asio: the timer or the
// descriptor brings it.
#pragma once

#include <memory>
#include <utility>

namespace muster {

/// Calls `run` after `wait`. Cancelling the timer or setting it again prevents that only until the time is up: a
/// handler that is queued by then still runs. So `run` checks the state of its object, or is guarded by a Life.
template <class Timer, class Run>
void call_after(Timer& timer, typename Timer::duration wait, Run run) {
    timer.expires_after(wait);
    timer.async_wait([run = std::move(run)](const auto& cancelled) mutable {
        if (!cancelled) run();
    });
}

/// Calls `run` once when there is something to read, or the other end has closed. Closing the descriptor prevents that,
/// except for a handler that is queued already.
template <class Descriptor, class Run>
void call_when_readable(Descriptor& descriptor, Run run) {
    descriptor.async_wait(Descriptor::wait_read, [run = std::move(run)](const auto& failure) mutable {
        if (!failure) run();
    });
}

/// For an object whose handlers may run after its end: a member of it.
class Life {
  public:
    Life() = default;
    Life(const Life&) = delete;
    Life& operator=(const Life&) = delete;

    /// A handler that calls `run` with its arguments. It does nothing after this object's end, or after end().
    template <class Run>
    [[nodiscard]] auto guard(Run run) const {
        return [life = std::weak_ptr(life_), run = std::move(run)](auto&&... what) mutable {
            if (!life.expired()) run(std::forward<decltype(what)>(what)...);
        };
    }
    /// The handlers that were guarded so far do nothing any more.
    void end() { life_ = std::make_shared<char>(); }

  private:
    std::shared_ptr<char> life_ = std::make_shared<char>();
};

}  // namespace muster
