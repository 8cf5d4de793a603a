// What ranks do together before the first step: make sure that they train the same model, and start from the same
// values.
#pragma once

#include <span>

#include "muster/bucket_exchange.h"
#include "muster/communicator.h"
#include "worker_runtime/core/bucket_plan.h"
#include "worker_runtime/core/registration.h"

namespace muster::runtime {

/// A collective. An error says, on every rank, what differs first between which two ranks. `local` is what this rank
/// thinks of its own registration: where it is an error, the other ranks learn that this rank is out.
Result<void> compare_registrations(Communicator& communicator, const Registration& registration,
                                   const Result<void>& local);

/// A collective: every rank's parameters become rank 0's. The buckets' memory, which it uses on the
/// way, then holds parameters.
Result<void> broadcast_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                                  std::span<const GradientBucket> buckets);

/// A collective: `caps` with what this group's latency and bandwidth, as rank 0 measures them, make of them.
Result<BucketCaps> measured_caps(Communicator& communicator, BucketCaps caps);

}  // namespace muster::runtime
