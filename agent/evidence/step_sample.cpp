#include "agent/evidence/step_sample.h"

#include <unistd.h>

#include "rendezvous/base/known_step.h"
#include "worker_runtime/core/step_record.h"

namespace muster::agent {

std::optional<StepSample> sample_step_record(int memory) {
    runtime::StepRecord record;
    if (::pread(memory, &record, sizeof record, 0) != static_cast<ssize_t>(sizeof record)) return std::nullopt;
    if (record.magic != runtime::step_record_magic) return std::nullopt;
    // A century: sums over ranks and rounds do not overflow.
    constexpr std::int64_t most = 3'000'000'000'000'000'000;
    const auto known = [](std::int64_t number) {
        return static_cast<std::uint64_t>(number >= 0 && number <= most ? number : 0);
    };
    StepSample sample;
    // Of a first step, one number may be there before the other.
    if (record.first_step != runtime::StepRecord{}.first_step) sample.last_step = known_step(record.last_step);
    if (sample.last_step >= 0) sample.tally.first_step = known_step(record.first_step);
    sample.last_at = Instant(Duration(static_cast<Duration::rep>(known(record.last_at_ns))));
    sample.tally.step_count = known(record.step_count);
    sample.tally.step_ns = known(record.step_ns);
    sample.tally.measured_ns = known(record.measured_ns);
    sample.tally.data_wait_ns = known(record.data_wait_ns);
    sample.tally.exposed_ns = known(record.exposed_ns);
    sample.tally.late_ns = known(record.late_ns);
    sample.tally.sample_count = known(record.sample_count);
    sample.tally.checkpoint_step = known_step(record.checkpoint_step);
    sample.tally.checkpoint_failure_count = known(record.checkpoint_failure_count);
    for (const auto count : record.step_times) sample.times.push_back({known(count)});
    return sample;
}

}  // namespace muster::agent
