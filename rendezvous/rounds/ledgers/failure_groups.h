// Groups equal failures, so that a thousand ranks that cannot import a module are one line.
//
// What makes two of them the same: their kind, how they ended, and the line that says why, all without numbers (ports,
// pids, addresses and times differ from rank to rank).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/rounds/ledgers/rank_ranges.h"
#include "rendezvous/wire/native/failure.h"

namespace muster::rendezvous {

/// What a person would quote of an end: what is known of its cause, or else its exception, or else its last line.
std::string error_line(const Failure& failure);

class FailureGroups {
  public:
    /// The kept groups; a failure of yet another one is only counted by the ledger.
    static constexpr std::size_t kept_max = 64;
    /// Ranks of one group that are kept by number: 20,000 nodes with 10 workers each.
    static constexpr std::size_t ranks_max = 200'000;

    /// A group as it is kept for the next daemon (job_record.h). Of its ranks as many as are ever told.
    struct Kept {
        std::string key;
        FailureKind kind = FailureKind::worker_error;
        std::string error;
        std::int32_t error_rank = 0;
        std::uint32_t count = 0;
        std::vector<RankRange> ranges;
    };

    FailureGroups() = default;
    /// `kept` in order of their ranks, whatever they are: what makes no sense is told wrong and does no harm.
    explicit FailureGroups(std::vector<Kept> kept);
    [[nodiscard]] std::vector<Kept> kept() const;

    /// Each failure once.
    void add(const Failure& failure);

    /// The group of `first`, then the others, the largest kinds of blame first and in one kind the larger groups; at
    /// most native::groups_max. In whatever order the failures came, the same ones are told with the same ranks.
    [[nodiscard]] std::vector<FailureGroup> list(const Failure& first) const;

  private:
    struct Group {
        FailureKind kind = FailureKind::worker_error;
        std::string error;  ///< of its lowest rank so far
        std::int32_t error_rank = 0;
        std::uint32_t count = 0;
        RankRanges ranges;
    };
    static std::string key_of(const Failure& failure, std::string_view line);

    std::map<std::string, Group> groups_;  ///< by key
    std::size_t rank_count_ = 0;
};

}  // namespace muster::rendezvous
