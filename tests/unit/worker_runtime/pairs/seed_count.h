// How many seeds the simulations of a search take: PAIRING_SEEDS=100000 simulates more.
#pragma once

#include <cstdlib>

#include "tests/support/effort.h"

inline int seed_count() {
    const char* const given = std::getenv("PAIRING_SEEDS");
    return given != nullptr ? std::atoi(given) : muster::test::random_cases(400);
}
