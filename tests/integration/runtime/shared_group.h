// A communicator over shared memory, for ranks of tests.
#pragma once

#include <memory>

#include "muster/communicator.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/shared_memory/shared_group.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::test {

/// Meets the other ranks of `terms`; aborts the test program when that fails.
Communicator join_shared_group(runtime::GroupTerms terms, Duration timeout = 60s);

/// The group below such a communicator, for tests that look inside. Aborts likewise, also after 60 s.
std::unique_ptr<runtime::SharedGroup> form_shared_group(const runtime::GroupTerms& terms);

}  // namespace muster::test
