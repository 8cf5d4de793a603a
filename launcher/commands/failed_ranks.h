// Which workers ended badly, by what muster has written of a job. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "rendezvous/base/error.h"

namespace muster::launcher {

/// Round and rank of each.
using FailedRanks = std::set<std::pair<std::uint64_t, std::uint32_t>>;

/// `text` is a report (--report), which has the last round, or events of one job (--events, /api/v1/jobs/JOB/events),
/// which have all rounds. Error: it is neither.
Result<FailedRanks> read_failed_ranks(std::string_view text);

}  // namespace muster::launcher
