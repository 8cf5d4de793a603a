// A wait for other ranks while a group is made, or allocates memory. It ends at its deadline, and for a part of another
// communicator as soon as that one has failed. This check is needed, because the new group has no connections yet that
// would show the death of a rank. A process that was kept has its round in the place of another communicator.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

/// The communicator that is being split, as the ranks that make a part see it; or the group itself once it is
/// connected. Thread-safe.
class ParentGroup {
  public:
    /// How a wait at the store learns of the failure: it looks at check_interval, or its connection is interrupted, and
    /// no rank polls the store.
    enum class StoreWaits { look, are_interrupted };

    /// `check_alive` returns at once; its error is the failure of the parent, which has `size` ranks.
    ParentGroup(std::function<Result<void>()> check_alive, int size, StoreWaits at_store = StoreWaits::look)
        : check_interval(std::max(check_interval_min, size * check_interval_min / ranks_of_least)),
          store_waits(at_store),
          check_(std::move(check_alive)) {}
    ParentGroup& operator=(ParentGroup&&) = delete;

    [[nodiscard]] Result<void> check_alive() const {
        const std::lock_guard lock(mutex_);
        return check_ ? check_() : Result<void>();
    }
    /// The part is made or has failed, and the parent may be destroyed. Afterwards check_alive() returns success.
    void let_go() {
        const std::lock_guard lock(mutex_);
        check_ = nullptr;
    }

    /// A third of the time within which a death must be reported on one host. Ranks that wait at the store poll it at
    /// this interval, so in large groups each polls less: together about 13,000 times per second.
    const Duration check_interval;
    const StoreWaits store_waits;

  private:
    static constexpr Duration check_interval_min = std::chrono::milliseconds(5);
    static constexpr int ranks_of_least = 64;

    mutable std::mutex mutex_;
    std::function<Result<void>()> check_;
};

struct MeetingWait {
    Instant deadline;
    std::shared_ptr<ParentGroup> parent{};  ///< may be null

    MeetingWait(Instant until) : deadline(until) {}  // NOLINT: most waits have a deadline only
    MeetingWait(Instant until, std::shared_ptr<ParentGroup> over) : deadline(until), parent(std::move(over)) {}

    [[nodiscard]] Result<void> check_alive() const { return parent ? parent->check_alive() : Result<void>(); }
    /// The time of the next check; earlier checks are not needed.
    [[nodiscard]] Instant next_check(Instant now) const {
        return parent ? std::min(deadline, now + parent->check_interval) : deadline;
    }
};

}  // namespace muster::runtime
