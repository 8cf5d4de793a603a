// A wait for other ranks while a group is made, or takes memory: it ends at its deadline, and for a part of another
// communicator as soon as that one has failed. Nobody else tells: a rank that dies here is in none of the new group's
// connections yet.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

/// The communicator that a part is being split from, as those see it who make the part; or the group itself, once it
/// stands. From any thread.
class ParentGroup {
  public:
    /// `look` returns at once; its error is the parent's end, which has `size` ranks.
    ParentGroup(std::function<Result<void>()> look, int size)
        : look_interval(std::max(look_interval_min, size * look_interval_min / ranks_of_least)),
          look_(std::move(look)) {}
    ParentGroup(const ParentGroup&) = delete;
    ParentGroup& operator=(const ParentGroup&) = delete;

    [[nodiscard]] Result<void> look() const {
        const std::lock_guard lock(mutex_);
        return look_ ? look_() : Result<void>();
    }
    /// The part is made, or never will be; the parent may go before it. Afterwards all is well.
    void let_go() {
        const std::lock_guard lock(mutex_);
        look_ = nullptr;
    }

    /// A third of what a death may take to be told on one host. Ranks that wait at the store ask it as often, so that
    /// in large groups each asks less: all together some 13,000 times a second.
    const Duration look_interval;

  private:
    static constexpr Duration look_interval_min = std::chrono::milliseconds(5);
    static constexpr int ranks_of_least = 64;

    mutable std::mutex mutex_;
    std::function<Result<void>()> look_;
};

struct MeetingWait {
    Instant deadline;
    std::shared_ptr<ParentGroup> parent{};  ///< may be null

    MeetingWait(Instant until) : deadline(until) {}  // NOLINT: a deadline is all that most waits have
    MeetingWait(Instant until, std::shared_ptr<ParentGroup> over) : deadline(until), parent(std::move(over)) {}

    [[nodiscard]] Result<void> look() const { return parent ? parent->look() : Result<void>(); }
    /// Nothing need be looked at before.
    [[nodiscard]] Instant next_look(Instant now) const {
        return parent ? std::min(deadline, now + parent->look_interval) : deadline;
    }
};

}  // namespace muster::runtime
