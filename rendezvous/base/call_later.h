// Handlers of asio's waits, without what each of them would repeat. It includes nothing of asio: the timer or the
// descriptor brings it.
#pragma once

#include <memory>
#include <utility>

namespace muster {

/// Calls `run` after `wait`, unless the timer is cancelled or set again before.
template <class Timer, class Run>
void call_after(Timer& timer, typename Timer::duration wait, Run run) {
    timer.expires_after(wait);
    timer.async_wait([run = std::move(run)](const auto& cancelled) mutable {
        if (!cancelled) run();
    });
}

/// Calls `run` once when there is something to read, or the other end has closed; never after the descriptor was
/// closed here.
template <class Descriptor, class Run>
void call_when_readable(Descriptor& descriptor, Run run) {
    descriptor.async_wait(Descriptor::wait_read, [run = std::move(run)](const auto& failure) mutable {
        if (!failure) run();
    });
}

/// For an object whose handlers may run after its end: a member of it.
class Life {
  public:
    /// `run` with whatever a handler gets; nothing after this object's end, or after end().
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
