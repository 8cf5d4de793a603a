#pragma once

#include <cmath>
#include <string>

#include "rendezvous/base/text/text.h"

namespace muster {

/// Rounded to tenths; a last 0 is left out: "12", "12.5", "-0.5".
inline std::string one_decimal(double value) {
    const auto tenths = std::llround(std::abs(value) * 10);
    const auto whole = cat(value < 0 && tenths > 0 ? "-" : "", tenths / 10);
    return tenths % 10 == 0 ? whole : cat(whole, '.', tenths % 10);
}

}  // namespace muster
