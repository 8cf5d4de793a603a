// What happens when, in the simulated world: one thing after another, in the order of their moments.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/simulation/host/virtual_clock.h"

namespace muster::simulation {

/// Things of one moment happen in the order in which they were planned, so a seed gives one run.
class EventQueue {
  public:
    using Happening = std::function<void()>;

    [[nodiscard]] Moment now() const { return now_; }
    /// `when` in the past means now, after what is already planned for now.
    void at(Moment when, Happening what);
    void after(Duration delay, Happening what) { at(now_ + delay, std::move(what)); }
    /// Does the next thing. False when nothing is planned.
    bool run_one();
    [[nodiscard]] std::uint64_t done_count() const { return done_count_; }

  private:
    struct Entry {
        Moment when;
        std::uint64_t order;
        Happening what;
    };

    std::vector<Entry> heap_;  ///< a binary heap: std::priority_queue cannot give its top away
    Moment now_{};
    std::uint64_t planned_count_ = 0;
    std::uint64_t done_count_ = 0;
};

/// A timer that is set again and again, as a core's deadline() moves. Earlier settings that come due are ignored.
class Alarm {
  public:
    Alarm(EventQueue& events, EventQueue::Happening ring) : events_(events), ring_(std::move(ring)) {}
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;
    ~Alarm() { ++*setting_; }

    /// Rings once at `when`; never means not at all.
    void set(Moment when);

  private:
    EventQueue& events_;
    EventQueue::Happening ring_;
    Moment set_for_ = never;
    /// Shared with the planned events, which may outlive this alarm: they ring only while it says so.
    std::shared_ptr<std::uint64_t> setting_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace muster::simulation
