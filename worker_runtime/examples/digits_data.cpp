#include "worker_runtime/examples/digits_data.h"

#include <fstream>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr unsigned pixel_max = 16;

bool parse_digit(std::string_view line, Digit& digit) {
    const auto fields = split(line, ',');
    if (fields.size() != digit_pixel_count + 1) return false;
    for (std::size_t i = 0; i < digit_pixel_count; ++i) {
        unsigned value = 0;
        if (!parse_number(fields[i], value) || value > pixel_max) return false;
        digit.pixels[i] = static_cast<float>(value) / pixel_max;
    }
    return parse_number(fields.back(), digit.label) && digit.label < digit_class_count;
}

}  // namespace

Result<DigitSet> load_digits(const std::string& path) {
    std::ifstream file(path);
    if (!file) return Error{Errc::not_found, cat(path, ": cannot be read; name the file of digits with --data")};
    DigitSet set;
    std::string line;
    for (std::size_t number = 0; std::getline(file, line); ++number) {
        Digit digit;
        if (!parse_digit(trim(line), digit)) {
            return Error{Errc::invalid_argument,
                         cat(path, " line ", number + 1, ": expected 64 pixels of 0..16 and a label of 0..9")};
        }
        (number % 5 == 4 ? set.test : set.train).push_back(digit);
    }
    if (set.test.empty()) return Error{Errc::invalid_argument, cat(path, ": fewer than 5 images")};
    return set;
}

}  // namespace muster::runtime
