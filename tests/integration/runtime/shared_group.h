// A communicator over shared memory, for ranks of tests.
#pragma once

#include "muster/communicator.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::test {

/// Meets the other ranks of `terms`; aborts the test program when that fails.
Communicator join_shared_group(runtime::GroupTerms terms, Duration timeout = 60s);

}  // namespace muster::test
