#include "worker_runtime/examples/digits_data.h"

#include <fstream>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::runtime;

namespace {

std::string line_of(int pixel, const std::string& label) {
    std::string line;
    for (std::size_t i = 0; i < digit_pixel_count; ++i) line += cat(pixel, ',');
    return line + label + "\n";
}

Result<DigitSet> load_text(const std::string& text) {
    const test::ScratchFolder folder;
    std::ofstream(folder / "digits.csv") << text;
    return load_digits(folder / "digits.csv");
}

}  // namespace

TEST_CASE("the file in the repository holds 1,797 digits, a fifth of them kept for the test") {
    const auto digits = load_digits(MUSTER_DIGITS_FILE);
    REQUIRE(digits.has_value());
    CHECK(digits->train.size() == 1438);
    CHECK(digits->test.size() == 359);
    CHECK(int(digits->train.front().label) == 0);
    CHECK(digits->train.front().pixels[2] == 5.0 / 16);
}

TEST_CASE("a file that is not of digits is refused with the line that is wrong") {
    const std::string good = line_of(16, "9");
    REQUIRE(load_text(good + good + good + good + good).has_value());
    for (const auto& bad : {line_of(17, "9"), line_of(-1, "9"), line_of(3, "10"), line_of(3, ""),
                            std::string("1,2,3\n"), std::string("\n"), line_of(3, "9,9"), line_of(3, "x")}) {
        const auto loaded = load_text(good + bad + good + good + good);
        REQUIRE(loaded.has_error());
        CHECK(loaded.error().context.find("line 2") != std::string::npos);
    }
    CHECK(load_text(good).has_error());
    CHECK(load_digits("no/such/file").error().code == Errc::not_found);
}
