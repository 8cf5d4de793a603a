// The metrics of one node's workers, for --metrics-file and --metrics-listen. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/evidence/step_sample.h"
#include "rendezvous/base/ids.h"
#include "rendezvous/base/text/metrics_page.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

struct WorkerNumbers {
    std::uint32_t local_rank = 0;
    std::uint32_t rank = 0;
    bool runs = false;
    StepSample steps = {};
};

/// A worker's counters begin anew with each round.
std::string worker_metrics(MetricsFormat format, const std::string& job, Round round,
                           const std::vector<WorkerNumbers>& workers, const std::vector<native::GpuBusy>& gpus);

}  // namespace muster::agent
