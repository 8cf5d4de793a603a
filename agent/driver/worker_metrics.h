// The metrics of one node's workers, for --metrics-file. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/evidence/step_sample.h"
#include "rendezvous/base/ids.h"

namespace muster::agent {

struct WorkerNumbers {
    std::uint32_t local_rank = 0;
    std::uint32_t rank = 0;
    bool runs = false;
    StepSample steps;
};

/// Prometheus' text format. A worker's counters begin anew with each round.
std::string worker_metrics(const std::string& job, Round round, const std::vector<WorkerNumbers>& workers);

}  // namespace muster::agent
