// How a job's time was spent: a fold over its events. Pure.
//
// Each moment from the job's submission, or its first agent, to its end is in exactly one bucket, so that the buckets
// sum to the wall clock exactly. A round without a reported step cannot be told from one that is still starting, and a
// step that takes long from a hang or a failure that nobody has seen yet. So the time since the seal is *pending* until
// the first step or the end of the round decides the bucket, and so is the time since the last word of steps until the
// next one; buckets never shrink.
//
//   queued          the submission to a scheduler, where the first agent was told of it, to that agent
//   waiting_nodes   the first agent, or the end of the last round's workers, to the seal
//   starting        the seal to the first step of all ranks, without the next one
//   loading_checkpoint  the time in it for which the slowest rank loaded a checkpoint
//   stepping        the first step to the round's end, without the next ones
//   data_wait       the time that the slowest rank waited for its data, as it measured it
//   checkpoint_blocked  the time that the slowest rank was in section "checkpoint"
//   section:NAME    the same for each other section; beyond eight names "section:other"
//   hung            a suspected hang to its end, or the round's: from the last step, where that was unusually long ago
//   unmeasured      a round in which no rank reported steps
//   detecting       the first failure of a round to the round's end, outside hangs
//   stopping        a round that failed: its end until no worker runs
//   reconfiguring   the same for a round that ended because nodes joined or left
//
// Steps that the next round repeats are lost. They are known when it reports its first step, so lost work is a counter
// of its own beside the buckets: goodput = (stepping - lost_work) / wall clock. If no round follows that reports steps,
// the steps after the newest checkpoint count as lost; if the checkpoint is unknown, nothing does.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/events/event.h"

namespace muster {

enum class TimeBucket : std::uint8_t {
    waiting_nodes,
    starting,
    stepping,
    data_wait,
    hung,
    unmeasured,
    stopping,
    reconfiguring,
    queued,
    loading_checkpoint,
    checkpoint_blocked,
    detecting,
    first_section  ///< The other ones follow.
};
inline constexpr auto fixed_buckets = static_cast<std::size_t>(TimeBucket::first_section);
inline constexpr auto time_buckets_max = fixed_buckets + sections_max;

class GoodputLedger {
  public:
    struct Totals {
        std::array<Duration, time_buckets_max> buckets{};  ///< By TimeBucket.
        std::vector<std::string> sections{};               ///< Those that have a bucket.
        Duration pending{};                                ///< Its bucket is not known yet.
        bool is_stepping = false;                          ///< `pending` is of a round that has steps.
        Duration wall_clock{};
        /// Seconds times ranks, by TimeBucket. A Duration would overflow: 16,000 ranks fill it in a week.
        std::array<double, time_buckets_max> rank_seconds{};
        double scaled_down = 0;  ///< The same for the ranks that were missing against the most nodes.
        Duration lost_work{};
        std::int64_t lost_step_count = 0;
        std::uint32_t failed_round_count = 0;  ///< Rounds that a failure or a lost node ended.

        [[nodiscard]] Duration of(TimeBucket bucket) const { return buckets[static_cast<std::size_t>(bucket)]; }
        [[nodiscard]] std::size_t bucket_count() const { return fixed_buckets + sections.size(); }
        /// "stepping", "section:evaluation".
        [[nodiscard]] std::string name_of(std::size_t bucket) const;
        /// With the pending time of a round that has steps.
        [[nodiscard]] Duration trained() const {
            return of(TimeBucket::stepping) + (is_stepping ? pending : Duration::zero());
        }
        /// From 0 to 1.
        [[nodiscard]] double goodput() const;
    };
    struct Kept {
        std::vector<std::int64_t> numbers;  ///< With instants on the wall clock. Empty before the first event.
        std::vector<std::string> sections;
        friend bool operator==(const Kept&, const Kept&) = default;
    };

    /// An earlier `now` than that of the last event counts as that one.
    void take(const Event& event, Instant now);
    [[nodiscard]] Totals totals(Instant now) const;
    /// For a daemon that continues.
    [[nodiscard]] Kept kept(Duration to_wall_clock) const;
    /// From those of an earlier daemon. Numbers that no ledger can have written give an empty one.
    static GoodputLedger from(const Kept& kept, Duration to_wall_clock, Instant now);
    /// "92.4 % of 192 min trained; 4 min starting, 9 min of work lost to 2 failures". Empty before the first event.
    [[nodiscard]] std::string sentence(Instant now) const;

  private:
    template <class Use>
    void each_number(Use use);
    void count(Totals& totals, TimeBucket bucket, Instant until) const;
    void note_ranks(const EventFacts& facts);
    void switch_to(TimeBucket bucket, Instant now);
    void add(TimeBucket bucket, Instant until);
    void begin(const EventFacts& facts, Instant now);
    void begin_round(Instant now);
    void begin_steps(const EventFacts& facts, Instant now);
    void end_round(const EventFacts& facts, Instant now);
    void begin_hang(const EventFacts& facts, Instant now);
    [[nodiscard]] bool is_stepping() const { return !pending_ && current_ == TimeBucket::stepping; }
    /// The time since `since_` has no bucket yet.
    [[nodiscard]] bool is_open() const { return pending_ || current_ == TimeBucket::stepping; }
    void divide(const EventFacts& facts, Instant until);
    [[nodiscard]] TimeBucket bucket_of(std::string_view section);
    void leave_round(const EventFacts& facts);
    void count_lost(std::int64_t first_repeated);
    [[nodiscard]] std::int64_t after_checkpoint() const;

    static constexpr std::int64_t ranks_max = 1 << 30;
    struct OpenRound {
        std::int64_t first_step = -1;
        std::int64_t last_step = -1;
        Duration stepping{};
        std::int64_t checkpoint_step = -1;  ///< The newest one at its end. -1: unknown.
        bool resumed = false;               ///< Its steps before this daemon have no time here.
    };
    Totals totals_;
    std::optional<Instant> began_;
    Instant since_{};         ///< All time before it is in a bucket.
    Instant weighed_from_{};  ///< This daemon counts ranks from then on: a metric that began anew counts nothing twice.
    bool over_ = false;
    bool hangs_ = false;    ///< By the last word of it, which may come before the first step.
    bool pending_ = false;  ///< The time since `since_` waits for a first step. `current_` then counts for nothing.
    TimeBucket current_ = TimeBucket::waiting_nodes;
    std::int64_t ranks_ = 0;          ///< Of the running round, or the last one.
    std::int64_t ranks_missing_ = 0;  ///< Against the most nodes.
    /// What the ranks did beside training in the running round, up to `since_`. nullopt: the next word says from where
    /// it counts.
    std::optional<SectionTimes> told_;
    std::optional<OpenRound> round_;  ///< The running round, or the ended one while its workers run.
    std::optional<OpenRound> left_;   ///< The last round with steps, until its lost work is counted.
};

}  // namespace muster
