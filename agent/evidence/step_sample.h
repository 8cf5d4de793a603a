// Reads the step record of a worker (worker_runtime/core/step_record.h), which may run or have ended.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

struct StepSample {
    std::int64_t last_step = -1;  ///< -1: none was reported.
    Instant last_at{};            ///< When it was.
    native::StepTally tally;
    std::vector<native::StepTimeCount> times;  ///< By step_time_bounds (rendezvous/base/step_buckets.h).
};

/// `memory` is the memfd of the record. Nothing if it is not a record. A worker wrote it, so no number is trusted:
/// those that cannot be are 0.
std::optional<StepSample> sample_step_record(int memory);

}  // namespace muster::agent
