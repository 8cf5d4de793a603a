// Elements that give an order of summing away.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace muster::test {

/// Random, of very different sizes, so that every other order of summing has other bits. The same on every call.
inline std::vector<float> uneven_values(int rank, std::size_t count) {
    std::minstd_rand random(static_cast<std::uint32_t>(rank) + 1);
    std::uniform_real_distribution<float> mantissa(-1, 1);
    std::vector<float> values(count);
    for (auto& value : values) value = std::ldexp(mantissa(random), static_cast<int>(random() % 24));
    return values;
}

}  // namespace muster::test
