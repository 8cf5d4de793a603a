// What the steps of a worker took, in a memfd that its agent reads: once a second, and after the worker's end. So a
// trainer reports each step without a system call, and the last step of a killed worker is known.
//
// Each field is written on its own, and a reader may see some of a step's numbers without the others. All but the steps
// only grow. The step times come from progress() (muster/section.h); what was measured within steps comes from gradient
// reducers, which do not know the numbers of steps.
#pragma once

#include <array>
#include <cstdint>

#include "muster/step_cost.h"
#include "rendezvous/base/step_buckets.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

inline constexpr std::array<char, 8> step_record_magic{'M', 'U', 'S', 'T', 'E', 'R', 'S', '2'};

/// Of one worker in one round.
struct StepRecord {
    std::array<char, 8> magic = step_record_magic;
    std::int64_t first_step = -1;
    std::int64_t last_step = -1;
    std::int64_t last_at_ns = 0;  ///< When the last step was reported, on the host's monotonic clock.
    std::int64_t step_count = 0;
    std::int64_t step_ns = 0;      ///< Of all steps but the first one, whose beginning is unknown.
    std::int64_t measured_ns = 0;  ///< Of the steps that reducers measured. The next three are parts of it.
    std::int64_t data_wait_ns = 0;
    std::int64_t exposed_ns = 0;        ///< The training thread waited for communication.
    std::int64_t late_ns = 0;           ///< The longest wait of any rank minus the wait of this one.
    std::int64_t sample_count = 0;      ///< Of all ranks.
    std::int64_t checkpoint_step = -1;  ///< The last checkpoint that is complete on disk. -1: none.
    std::int64_t checkpoint_failure_count = 0;
    std::array<std::int64_t, step_time_bucket_count> step_times{};  ///< Number of steps in each bucket.
};

/// Step `step` is over. Not for several threads at once.
void note_step(StepRecord& record, std::int64_t step, Instant now);

/// Adds a step that a reducer measured, and how late this rank was in it.
void add_cost(StepRecord& record, const StepCost& cost, Duration late);

/// The save of the checkpoint of `step` has ended, on all ranks.
void note_checkpoint(StepRecord& record, std::int64_t step, bool is_complete);

/// The record of this process, for reducers. nullptr: no agent reads one.
StepRecord* live_step_record();
/// From now on. `record` stays valid until the process ends.
void set_live_step_record(StepRecord* record);

}  // namespace muster::runtime
