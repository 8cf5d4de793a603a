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
    /// `check_alive` returns at once; its error is the parent's end, which has `size` ranks.
    ParentGroup(std::function<Result<void>()> check_alive, int size)
        : check_interval(std::max(check_interval_min, size * check_interval_min / ranks_of_least)),
          check_(std::move(check_alive)) {}
    ParentGroup(const ParentGroup&) = delete;
    ParentGroup& operator=(const ParentGroup&) = delete;

    [[nodiscard]] Result<void> check_alive() const {
        const std::lock_guard lock(mutex_);
        return check_ ? check_() : Result<void>();
    }
    /// The part is made, or never will be; the parent may go before it. Afterwards all is well.
    void let_go() {
        const std::lock_guard lock(mutex_);
        check_ = nullptr;
    }

    /// A third of what a death may take to be told on one host. Ranks that wait at the store ask it as often, so that
    /// in large groups each asks less: all together some 13,000 times a second.
    const Duration check_interval;

  private:
    static constexpr Duration check_interval_min = std::chrono::milliseconds(5);
    static constexpr int ranks_of_least = 64;

    mutable std::mutex mutex_;
    std::function<Result<void>()> check_;
};

struct MeetingWait {
    Instant deadline;
    std::shared_ptr<ParentGroup> parent{};  ///< may be null

    MeetingWait(Instant until) : deadline(until) {}  // NOLINT: a deadline is all that most waits have
    MeetingWait(Instant until, std::shared_ptr<ParentGroup> over) : deadline(until), parent(std::move(over)) {}

    [[nodiscard]] Result<void> check_alive() const { return parent ? parent->check_alive() : Result<void>(); }
    /// Nothing need be looked at before.
    [[nodiscard]] Instant next_check(Instant now) const {
        return parent ? std::min(deadline, now + parent->check_interval) : deadline;
    }
};

}  // namespace muster::runtime
