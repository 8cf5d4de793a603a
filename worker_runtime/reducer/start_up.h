// The collectives of all ranks before the first step: they compare their models and copy rank 0's values.
#pragma once

#include <span>

#include "muster/bucket_exchange.h"
#include "muster/communicator.h"
#include "worker_runtime/core/bucket_plan.h"
#include "worker_runtime/core/registration.h"

namespace muster::runtime {

/// A collective. An error on every rank names the first difference and the two ranks. `local` is the check of this
/// rank's own registration: if it is an error, the other ranks fail too.
Result<void> compare_registrations(Communicator& communicator, const Registration& registration,
                                   const Result<void>& local);

/// A collective: replaces every rank's parameters by rank 0's. It uses the buckets' memory, which holds parameters
/// afterwards.
Result<void> broadcast_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                                  std::span<const GradientBucket> buckets);

/// A collective: adapts `caps` to this group's latency and bandwidth, as rank 0 measures them.
Result<BucketCaps> measured_caps(Communicator& communicator, BucketCaps caps);

}  // namespace muster::runtime
