// The 16-bit formats, written a second time and another way than the kernels': by arithmetic on doubles, for tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace muster::test {

/// A binary format of 16 bits: one sign, `exponent_bits`, the rest fraction.
struct Format16 {
    int exponent_bits;

    [[nodiscard]] int fraction_bits() const { return 15 - exponent_bits; }
    [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    [[nodiscard]] std::uint16_t infinity() const {
        return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << fraction_bits());
    }
    [[nodiscard]] std::uint16_t nan() const {
        return static_cast<std::uint16_t>(infinity() | 1 << (fraction_bits() - 1));
    }

    [[nodiscard]] float decode(std::uint16_t bits) const {
        const double sign = bits & 0x8000 ? -1 : 1;
        const int exponent = (bits & 0x7fff) >> fraction_bits();
        const int fraction = bits & ((1 << fraction_bits()) - 1);
        if (exponent == (1 << exponent_bits) - 1) {
            return fraction ? std::numeric_limits<float>::quiet_NaN()
                            : static_cast<float>(sign * std::numeric_limits<double>::infinity());
        }
        const double value = exponent
                                 ? std::ldexp(fraction + (1 << fraction_bits()), exponent - bias() - fraction_bits())
                                 : std::ldexp(fraction, 1 - bias() - fraction_bits());
        return static_cast<float>(sign * value);
    }

    /// To nearest, ties to even: std::nearbyint in units of the result's last place.
    [[nodiscard]] std::uint16_t encode(float value) const {
        if (std::isnan(value)) return nan();
        const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
        const double magnitude = std::fabs(static_cast<double>(value));
        if (std::isinf(value)) return sign | infinity();
        if (magnitude == 0) return sign;
        const int least = 1 - bias();
        int exponent = std::ilogb(magnitude);
        if (exponent < least) exponent = least;
        // Counted in last places, consecutive numbers have consecutive patterns, across exponents and up to infinity.
        const double places = std::nearbyint(std::ldexp(magnitude, fraction_bits() - exponent));
        const double pattern = places + std::ldexp(exponent - least, fraction_bits());
        if (pattern >= infinity()) return sign | infinity();
        return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(pattern));
    }
};

inline constexpr Format16 binary16{5};
inline constexpr Format16 bfloat16{8};

}  // namespace muster::test
