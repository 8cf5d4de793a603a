// Tests of what another user of this host may do.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "tests/support/catch.h"

namespace muster::test {

/// True where this test may become another user. Continuous integration runs as root.
inline bool may_be_another_user() {
    if (::geteuid() == 0) return true;
    const char* const ci = std::getenv("CI");
    if (ci != nullptr && std::string_view(ci) == "true") FAIL("a test of two users needs root");
    WARN("skipped: becoming another user needs root");
    return false;
}

}  // namespace muster::test
