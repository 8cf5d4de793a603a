// What a worker's communicators do, read from its flight record while it runs (worker_runtime/core/flight_record.h).
#pragma once

#include <optional>
#include <string>

#include "agent/diagnosis/hang_watch.h"

namespace muster::agent {

/// `memory`: the record that the worker gave to its agent. Reads 7 KiB of it and no more; nothing where that is no
/// record, or one without an operation. The worker writes meanwhile, so one look may be of two moments.
std::optional<OperationLook> look_at_flight_record(int memory);

/// The first failure of that worker's communicators, in words; empty: there was none, or it is no record.
std::string flight_failure(int memory);

}  // namespace muster::agent
