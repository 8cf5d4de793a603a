// Tests of what another user of this host may do.
#pragma once

#include <unistd.h>

#include "tests/support/skip.h"

namespace muster::test {

/// True where this test may become another user. Continuous integration runs as root.
inline bool may_be_another_user() {
    if (::geteuid() == 0) return true;
    skip("becoming another user needs root");
    return false;
}

}  // namespace muster::test
