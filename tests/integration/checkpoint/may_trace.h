// Tests that trace processes.
#pragma once

#include "tests/integration/checkpoint/tracer.h"
#include "tests/support/skip.h"

namespace muster::test {

/// False, with a skip, where this process may not trace others.
inline bool may_trace() {
    if (Tracer::allowed()) return true;
    skip("this system does not let a process trace another");
    return false;
}

}  // namespace muster::test
