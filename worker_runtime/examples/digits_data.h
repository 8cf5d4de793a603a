// The digits that the example trains on: see data/README.md for where they come from.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::runtime {

inline constexpr std::size_t digit_pixel_count = 64;
inline constexpr std::size_t digit_class_count = 10;

/// One image, 8x8, row by row, each pixel 0..1; and which digit it shows, 0..9.
struct Digit {
    std::array<float, digit_pixel_count> pixels;
    std::uint8_t label = 0;
};

struct DigitSet {
    std::vector<Digit> train;
    std::vector<Digit> test;  ///< Every fifth image of the file; not used for training.
};

/// Reads the file of 65 whole numbers a line: 64 pixels of 0..16, then the label. Errors name the line.
Result<DigitSet> load_digits(const std::string& path);

}  // namespace muster::runtime
