// Numbers that were computed in two ways.
#pragma once

#include <cmath>

namespace muster::test {

inline bool near(double value, double expected) {
    return std::abs(value - expected) <= 1e-9 * std::abs(expected);
}

}  // namespace muster::test
