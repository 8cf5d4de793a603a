// What the steps of a job took, from the agents' reports (WorkersSeen). Pure; Job (job_seen.cpp) feeds it.
//
// Counts are those of rank 0, because all ranks take the same steps: they only grow, over all rounds. Shares are means
// over all ranks between the last two reports of each node, in which the ranks have measured steps.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "rendezvous/base/step_buckets.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

struct StepSummary {
    std::uint64_t step_count = 0;
    std::uint64_t sample_count = 0;  ///< Of all ranks.
    Duration step_time{};            ///< Of the steps in `times`.
    std::array<std::uint64_t, step_time_bucket_count> times{};
    std::uint64_t checkpoint_failure_count = 0;
    // Unknown before a report has them.
    std::optional<double> step_seconds;        ///< Lately.
    std::optional<double> samples_per_second;  ///< Lately.
    std::optional<double> exposed;             ///< Share of a step in which ranks waited for communication.
    std::optional<double> straggler_cost;      ///< Share of a step in which the mean rank waits for the slowest one.
    std::int32_t slowest_rank = -1;            ///< The one that the others wait for.
};

class StepLedger {
  public:
    enum class Hang { no_change, suspected, over };
    struct News {
        std::int64_t checkpoint_step = -1;  ///< Of a checkpoint that is complete now.
        std::uint64_t checkpoint_failure_count = 0;
        Hang hang = Hang::no_change;
    };

    /// Of a round whose beginning it has not seen, it counts nothing before the first report of rank 0.
    void begin_round();
    /// `before`: what the same node reported last in this round. `node_count`: of the round.
    News take(Incarnation from, const std::vector<native::SeenWorker>& before, const native::WorkersSeen& seen,
              std::uint32_t node_count);
    [[nodiscard]] StepSummary summary() const;
    /// Of the last checkpoint that became complete in this round. -1: none.
    [[nodiscard]] std::int64_t checkpoint_step() const { return checkpoint_step_; }
    /// In this round, of the rank that waited longest for its data. -1: no rank measures it.
    [[nodiscard]] std::int64_t data_wait_ms() const { return data_wait_ms_; }
    /// In this round, of the rank that was longest in each.
    [[nodiscard]] const SectionTimes& sections() const { return sections_; }
    /// Of rank 0, within the bounds of the histogram. Nothing before a step has a time.
    [[nodiscard]] std::optional<Duration> median_step() const;

  private:
    struct Node {
        double exposed = 0;  ///< Sums over its ranks.
        double late = 0;
        double late_max = 0;
        std::int32_t late_rank = -1;
        std::uint32_t measured_count = 0;  ///< Ranks in these sums.
        std::uint64_t rank_count = 0;
        std::uint64_t waiting_count = 0;
        std::uint64_t overdue_count = 0;
    };
    void count_rank_0(const native::StepTally& now, const std::vector<native::StepTimeCount>& times, News& news);
    Hang judge(std::uint32_t node_count);

    StepSummary sums_;
    std::map<Incarnation, Node> nodes_;  ///< Of the running round.
    /// Rank 0's last ones in this round, also while its node's reports lack it.
    std::optional<native::StepTally> tally_;
    std::vector<native::StepTimeCount> times_;
    std::int64_t checkpoint_step_ = -1;
    std::int64_t data_wait_ms_ = -1;
    SectionTimes sections_;
    std::uint64_t rank_count_ = 0;
    std::uint64_t waiting_count_ = 0;
    std::uint64_t overdue_count_ = 0;
    bool hangs_ = false;
};

}  // namespace muster::rendezvous
