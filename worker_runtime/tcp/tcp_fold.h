// Reductions over TCP: see tcp_collectives.h.
#pragma once

#include "rendezvous/base/error.h"
#include "worker_runtime/tcp/tcp_lanes.h"

namespace muster::runtime {

/// all_reduce and reduce_scatter.
Result<void> run_reduction(TcpLanes& lanes, const Operation& operation, const RunTerms& terms);

}  // namespace muster::runtime
