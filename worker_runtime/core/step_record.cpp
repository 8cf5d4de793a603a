#include "worker_runtime/core/step_record.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace muster::runtime {

namespace {

std::atomic<StepRecord*> live_record{nullptr};

void add(std::int64_t& field, std::int64_t value) {
    std::atomic_ref(field).fetch_add(value, std::memory_order_relaxed);
}

void set(std::int64_t& field, std::int64_t value) {
    std::atomic_ref(field).store(value, std::memory_order_relaxed);
}

/// A program may report every hundredth step. More than a million at once is a step number that was set anew.
constexpr std::int64_t steps_at_once_max = 1'000'000;

}  // namespace

void note_step(StepRecord& record, std::int64_t step, Instant now) {
    const std::int64_t now_ns = now.time_since_epoch().count();
    const auto ahead = step - record.last_step;
    const auto count = ahead > 0 && ahead <= steps_at_once_max ? ahead : 1;
    if (record.step_count == 0) {
        add(record.step_count, 1);
        if (record.first_step == StepRecord{}.first_step) set(record.first_step, step);
    } else {
        const auto took = now_ns - record.last_at_ns;
        const auto bucket = std::ranges::lower_bound(step_time_bounds, Duration(took / count));
        add(record.step_count, count);
        add(record.step_ns, took);
        add(record.step_times[static_cast<std::size_t>(bucket - step_time_bounds.begin())], count);
    }
    set(record.last_step, step);
    set(record.last_at_ns, now_ns);
}

void add_cost(StepRecord& record, const StepCost& cost, Duration late) {
    add(record.measured_ns, cost.total.count());
    add(record.data_wait_ns, cost.data_wait.count());
    add(record.exposed_ns, cost.exposed.count());
    add(record.late_ns, late.count());
    // The sum of the ranks' samples: whole numbers, unless a program weighs them.
    add(record.sample_count, std::llround(std::clamp(cost.samples, 0.0, 1e15)));
}

void note_checkpoint(StepRecord& record, std::int64_t step, bool is_complete) {
    if (is_complete)
        set(record.checkpoint_step, step);
    else
        add(record.checkpoint_failure_count, 1);
}

StepRecord* live_step_record() {
    return live_record.load(std::memory_order_acquire);
}

void set_live_step_record(StepRecord* record) {
    live_record.store(record, std::memory_order_release);
}

}  // namespace muster::runtime
