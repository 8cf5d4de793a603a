// Samples the flight record of a running worker (worker_runtime/core/flight_record.h).
#pragma once

#include <optional>
#include <string>

#include "agent/diagnosis/hang_watch.h"

namespace muster::agent {

/// `memory` is the memfd of the worker's flight record. Reads at most 7 KiB. Nothing if it is not a record or has no
/// operation. The worker writes meanwhile, so a sample may mix two states.
std::optional<OperationSample> sample_flight_record(int memory);

/// A description of the first failure of the worker's communicators. Empty: none, or not a record.
std::string flight_failure(int memory);

}  // namespace muster::agent
