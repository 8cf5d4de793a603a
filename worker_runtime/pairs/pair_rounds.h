// The rounds of the search: rank 0 publishes which nodes test each other, every rank tests, and rank 0 collects.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/context/round_store.h"
#include "worker_runtime/pairs/group_search.h"
#include "worker_runtime/pairs/pair_test.h"
#include "worker_runtime/pairs/search_limits.h"

namespace muster::runtime {

/// After the end of a test, for its results to reach rank 0.
inline constexpr Duration answer_slack = 2s;

struct SearchTerms {
    int rank = 0;
    int world_size = 1;
    int expected_count = 1;  ///< Nodes that should have come.
    std::string networks;    ///< Of this node (shared_networks.h).
    SearchLimits limits;     ///< Those of rank 0 count.
    std::shared_ptr<RoundStore> store;
};

/// Tests the group of this rank, if it has one, and answers. `round` is what rank 0 published: groups, before which the
/// name of a network may stand, and then its limit of losses.
Result<void> test_own(const SearchTerms& terms, int step, std::string_view round);

class PairRounds {
  public:
    /// `terms` outlives it.
    explicit PairRounds(const SearchTerms& terms) : terms_(terms) {}

    /// One result for each group. With the name of a network they connect there alone.
    Result<std::vector<PairResult>> test(const std::vector<NodeGroup>& groups, std::string_view network = {});
    /// The next that all other ranks read.
    Result<void> publish(const std::string& text);

    /// The ranks that did not answer in the last round.
    [[nodiscard]] const std::set<int>& silent() const { return silent_; }
    /// Ranks whose answers have another form, and the reason.
    [[nodiscard]] const std::map<int, std::string>& unread() const { return unread_; }
    /// By rank: how far its wall clock is ahead of this node's, less the time that its answer took.
    [[nodiscard]] const std::map<int, std::int64_t>& ahead_ms() const { return ahead_ms_; }

  private:
    PairResult collect(const NodeGroup& group, Instant deadline);

    const SearchTerms& terms_;
    int step_ = 0;  // of the texts that were published
    std::set<int> silent_;
    std::map<int, std::string> unread_;
    std::map<int, std::int64_t> ahead_ms_;
};

}  // namespace muster::runtime
