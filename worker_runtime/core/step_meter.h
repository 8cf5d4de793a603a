// Adds up what steps cost. Times come as arguments.
#pragma once

#include <span>

#include "muster/step_cost.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

/// Should a step be judged?
enum class StepKind {
    ordinary,
    unusual,  ///< It did additional work, such as making new buckets.
};

class StepMeter {
  public:
    static constexpr std::uint64_t warm_up_count = 2;

    explicit StepMeter(int world);

    /// Nothing before `now` belongs to a step. Called once, before the first step.
    void start(Instant now);

    /// What happened in the step in progress.
    void add_data_wait(Duration wait) { current_.data_wait += wait; }
    void add_exposed(Duration wait) { current_.exposed += wait; }
    void add_communication(Duration busy) { current_.communication += busy; }
    void add_bytes(std::size_t bytes) { current_.bytes += bytes; }

    /// What each rank waited in one step, in rank order.
    void add_waits(std::span<const Duration> waits);

    /// The step in progress is over, and the next one begins. `samples` are those of all ranks.
    const StepCost& end_step(Instant now, double samples, StepKind kind);

    [[nodiscard]] const StepCost& last() const { return last_; }

    /// What this rank waited in the step in progress.
    [[nodiscard]] Duration exposed() const { return current_.exposed; }

    /// All but the buckets, which the meter does not know.
    [[nodiscard]] CostSummary summary() const;

  private:
    int world_;
    Instant began_{};
    StepCost current_;
    StepCost last_;
    StepCost first_;
    StepCost sum_;
    std::uint64_t step_count_ = 0;
    std::uint64_t left_out_count_ = 0;
    std::vector<Duration> lateness_sums_;
    std::uint64_t lateness_count_ = 0;
};

}  // namespace muster::runtime
