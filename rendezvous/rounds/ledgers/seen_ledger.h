// Combines the agents' reports about their workers over all nodes of the running round: finds ranks that are overdue
// while others wait, and stragglers. Pure; Job (job_seen.cpp) feeds it and sends the result.
//
// Whether a worker is overdue its own agent has judged, by that worker's own pauses; here only durations meet, never
// the clocks of two hosts. A node that says nothing any more is the lease's business: what it said is left out soon.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

class SeenLedger {
  public:
    /// Of one node whose workers run; both outlive the call.
    struct Node {
        const std::string& host;
        const std::vector<native::SeenWorker>& workers;
        Instant received_at;
    };

    /// A node has said this.
    void note(const std::vector<native::SeenWorker>& workers, Instant now);
    /// When look() is to be called; no_deadline where nothing is suspicious.
    [[nodiscard]] Instant due() const { return due_; }
    /// Each worker is named once for each pause of its own, by whoever waits with the lowest rank. However many there
    /// are, something is told at most every ten seconds. (The round is for the caller to fill in.)
    std::optional<native::JobSeen> look(const std::vector<Node>& nodes, Instant now);

  private:
    struct Share {
        double percent_sum = 0;
        std::uint32_t count = 0;
    };
    void note_shares(const std::vector<native::SeenWorker>& workers, Instant now);
    void name_missing(const std::vector<Node>& nodes, Instant now, native::JobSeen& said);
    void name_straggler(const std::vector<Node>& nodes, Instant now, native::JobSeen& said);

    Instant due_ = no_deadline;
    std::optional<Instant> missing_logged_at_;
    std::set<std::int32_t> told_;           ///< ranks, since they became overdue
    std::map<std::int32_t, Share> shares_;  /// by rank, since shares_since_
    std::optional<Instant> shares_since_;
    std::optional<Instant> straggler_logged_at_;
};

}  // namespace muster::rendezvous
