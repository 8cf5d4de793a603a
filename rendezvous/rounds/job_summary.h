// A job in numbers, for metrics; and those of jobs that are over, which a scrape may still want.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/events/goodput_ledger.h"
#include "rendezvous/events/job_counters.h"
#include "rendezvous/rounds/ledgers/step_ledger.h"

namespace muster::rendezvous {

class Job;

struct JobSummary {
    std::string id;
    std::string_view phase;
    std::map<std::string_view, std::uint64_t> nodes;  ///< By place ("running", "parked" ...).
    std::map<std::string_view, std::uint64_t> ranks;  ///< Of running nodes ("training", "waiting" ...).
    Duration silence_max{};                           ///< Of the member that was heard longest ago.
    std::uint32_t nodes_min = 0;
    std::uint32_t nodes_max = 0;
    std::uint32_t restarts_used = 0;
    std::uint32_t restarts_max = 0;
    std::uint32_t restarts_left = 0;
    Round round = no_round;             ///< The last one.
    std::int64_t step = -1;             ///< Of the slowest rank. -1: unknown.
    std::int64_t checkpoint_step = -1;  ///< Of the last round's end. -1: unknown.
    struct Checkpoint {
        std::string_view tier;
        std::int64_t step = -1;              ///< -1: unknown.
        std::optional<Duration> since_1970;  ///< When the daemon heard of it.
    };
    std::vector<Checkpoint> checkpoints{};
    GoodputLedger::Totals time;
    JobCounters counters;
    StepSummary steps{};
};

/// JSON texts of a job (status.h).
struct JobPieces {
    std::string job;
    std::vector<std::pair<std::string, std::string>> nodes;  ///< Key and text of those that changed.
    std::vector<std::string> gone{};                         ///< Keys.
};

JobSummary summary_of(const Job& job, Instant now);

/// Jobs that the daemon has forgotten, for an hour: a scraper that comes every minute has their last numbers.
class PastJobs {
  public:
    void add(JobSummary summary, Instant now);
    /// `jobs` are sorted by id. One of them that runs again under the same name replaces its past.
    void append_to(std::vector<JobSummary>& jobs, Instant now) const;

    /// Null: none of this id.
    [[nodiscard]] const JobSummary* find(std::string_view id, Instant now) const;

  private:
    struct Past {
        Instant until;
        JobSummary summary;
    };
    std::deque<Past> jobs_;  ///< The oldest first.
};

}  // namespace muster::rendezvous
