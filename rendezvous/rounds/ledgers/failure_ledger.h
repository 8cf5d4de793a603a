// The failures of one round as the daemon keeps them: every one is counted, and of each kind the earliest are kept
// whole, because only these can be its first cause.
//
// Why not all of them: a round of 20,000 nodes may report 200 failures each, every report with 64 KiB of stderr, and
// a daemon serves many jobs. The verdict needs one failure and a number.
//
// The first cause of those that are kept is the first cause of all where the clocks' errors are alike: it is the
// earliest of its kind (verdict.h). Where one error is far larger than the others, a later failure of a kind can be
// nearer to the cause; a few of each kind leave room for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/rounds/ledgers/failure_groups.h"
#include "rendezvous/wire/native/failure.h"

namespace muster::rendezvous {

class FailureLedger {
  public:
    /// Of each kind; with the limits of the native protocol a ledger holds at most 1.5 MiB of text.
    static constexpr std::size_t kept_per_kind_max = 4;
    /// Failures that are known by name, so that a report that comes again counts nothing: 20,000 nodes with 10 workers
    /// each, 10 MiB. Beyond it all are counted as new.
    static constexpr std::size_t known_max = 200'000;

    FailureLedger() = default;
    /// As a daemon kept it: `known` may be fewer than `count`.
    FailureLedger(std::vector<Failure> kept, std::set<std::uint64_t> known, std::size_t count, FailureGroups groups);

    /// The same failures by another clock, which is ahead by so much.
    [[nodiscard]] FailureLedger on_clock(Duration ahead) const;

    /// Adds what is not known yet; a report may be sent again after a reconnect. True: it was new.
    bool add(Failure failure);

    [[nodiscard]] bool empty() const { return count_ == 0; }
    [[nodiscard]] std::size_t count() const { return count_; }
    /// The first cause (verdict.h); the ledger must not be empty.
    [[nodiscard]] const Failure& first_cause(Duration victim_window) const;
    /// A worker's own failure is among them: not a victim's, and not the loss of a node, which costs no restart.
    [[nodiscard]] bool has_own_fault() const;
    [[nodiscard]] const std::vector<Failure>& kept() const { return kept_; }
    /// Fingerprints of those that are known by name.
    [[nodiscard]] const std::set<std::uint64_t>& known() const { return known_; }
    /// How often kept() has changed.
    [[nodiscard]] std::uint64_t revision() const { return revision_; }
    /// All that were added, by what they say (failure_groups.h).
    [[nodiscard]] std::vector<FailureGroups::Kept> kept_groups() const { return groups_.kept(); }
    [[nodiscard]] std::vector<FailureGroup> groups(Duration victim_window) const {
        return groups_.list(first_cause(victim_window));
    }

  private:
    std::vector<Failure> kept_;
    std::set<std::uint64_t> known_;  ///< fingerprints
    std::size_t count_ = 0;
    std::uint64_t revision_ = 0;
    FailureGroups groups_;
};

}  // namespace muster::rendezvous
