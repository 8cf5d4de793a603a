// Which workers ended badly, by what muster has written of a job. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "rendezvous/base/error.h"

namespace muster::launcher {

/// The largest rank that a list of ranks may name.
inline constexpr std::uint32_t rank_max = 1'000'000;

struct FailedRanks {
    std::set<std::pair<std::uint64_t, std::uint32_t>> ranks;  ///< Round and rank.
};

/// `text` is a report (--report), which has the last round, or events of one job (--events, /api/v1/jobs/JOB/events),
/// which have all rounds. Error: it is neither.
Result<FailedRanks> read_failed_ranks(std::string_view text);

}  // namespace muster::launcher
